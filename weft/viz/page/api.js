// Questions to the local server; answers are kept, the newest few of the large ones.

const kept = new Map();
const MOST = 60;

export async function ask(question) {
    if (kept.has(question)) {
        const answer = kept.get(question);
        kept.delete(question);
        kept.set(question, answer);
        return answer;
    }
    const answer = load(question);
    kept.set(question, answer);
    answer.catch(() => kept.delete(question));
    if (kept.size > MOST) kept.delete(kept.keys().next().value);
    return answer;
}

async function load(question) {
    let response;
    try {
        response = await fetch(`api/${question}`);
    } catch {
        throw new Error(
            "The viewer's server does not answer any more. Start it again with `weft viz`.",
        );
    }
    const data = await response.json();
    if (!response.ok) throw new Error(data.error || response.statusText);
    return data;
}
