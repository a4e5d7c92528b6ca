// Folds what one line of the program made into one box; loaded by the layout worker.
//
// In: a graph in columns, and which of its nodes stand inside others anyway. Out: groups of nodes
// in an order in which sources come first. A layer that runs sixteen times is sixteen boxes, its
// gradient another sixteen. No group is ever on a way from another one back to itself.

const ROUNDS = 6;

function lineGroups(graph, folded) {
    const joined = joinAlongLines(graph, folded);
    const groups = contract(graph, folded, joined);
    return inOrder(graph, folded, joinEnds(graph, folded, groups));
}

// A node joins a source of its own line if all that it reads elsewhere stands above the group's
// first node. Edges between groups then lead from lower first nodes to higher ones: no circles.
function joinAlongLines(graph, folded) {
    const count = graph.op.length;
    const level = new Int32Array(count);
    const group = new Int32Array(count).fill(-1);
    const start = [];
    for (let node = 0; node < count; node += 1) {
        if (folded[node]) continue;
        const sources = graph.src[node].filter((source) => !folded[source]);
        for (const source of sources) level[node] = Math.max(level[node], level[source] + 1);
        // views that rewrites put in have no line: they go with what they are views of
        const fits = (source) =>
            graph.origin[node] < 0
                ? sources.length === 1
                : graph.origin[source] === graph.origin[node];
        let best = -1;
        for (const source of sources) {
            const own = group[source];
            if (!fits(source) || (best >= 0 && start[own] <= start[best])) continue;
            const isFree = (other) => group[other] === own || level[other] < start[own];
            if (sources.every(isFree)) best = own;
        }
        if (best < 0) {
            best = start.length;
            start.push(level[node]);
        }
        group[node] = best;
    }
    return group;
}

// A group that only one other reads can go into it without making a circle, and so can one that
// reads only one other: parts of a line, and the views of weights that are used in one place.
function contract(graph, folded, group) {
    const count = Math.max(-1, ...group) + 1;
    const parent = Array.from({ length: count }, (_, number) => number);
    const rootOf = (number) => {
        let root = number;
        while (parent[root] !== root) root = parent[root];
        parent[number] = root;
        return root;
    };
    const line = new Int32Array(count).fill(-1);
    const reads = Array.from({ length: count }, () => new Set());
    const users = Array.from({ length: count }, () => new Set());
    for (let node = 0; node < group.length; node += 1) {
        const own = group[node];
        if (own < 0) continue;
        if (graph.origin[node] >= 0) line[own] = graph.origin[node];
        for (const source of graph.src[node]) {
            if (folded[source] || group[source] === own) continue;
            reads[own].add(group[source]);
            users[group[source]].add(own);
        }
    }
    const others = (set, own) => new Set([...set].map(rootOf).filter((other) => other !== own));
    const merge = (from, into) => {
        parent[from] = into;
        for (const one of reads[from]) reads[into].add(one);
        for (const one of users[from]) users[into].add(one);
        if (line[into] < 0) line[into] = line[from];
    };
    // what is left after some rounds is a graph without lines to speak of
    for (let round = 0, changed = true; changed && round < ROUNDS; round += 1) {
        changed = false;
        for (let own = count - 1; own >= 0; own -= 1) {
            if (parent[own] !== own) continue;
            const sources = others(reads[own], own);
            const after = others(users[own], own);
            const [user] = after;
            const [source] = sources;
            const isPlain = (other) => line[own] < 0 || line[other] === line[own];
            if (after.size === 1 && (sources.size === 0 || isPlain(user))) merge(own, user);
            else if (sources.size === 1 && isPlain(source)) merge(own, source);
            else continue;
            changed = true;
        }
    }
    return group.map((number) => (number < 0 ? -1 : rootOf(number)));
}

// What leads nowhere but to the end, and to more of the same line, is one group: the updates of all
// parameters. Nothing comes back from there, so there is no circle.
function joinEnds(graph, folded, group) {
    const root = group.length - 1;
    const line = new Map();
    for (let node = 0; node < root; node += 1)
        if (graph.origin[node] >= 0) line.set(group[node], graph.origin[node]);
    // the line that a group ends in, or -2 where it leads elsewhere too
    const end = new Map();
    for (let node = root - 1; node >= 0; node -= 1)
        if (group[node] >= 0) end.set(group[node], line.get(group[node]) ?? -2);
    for (let changed = true; changed; ) {
        changed = false;
        for (let node = root - 1; node >= 0; node -= 1) {
            if (group[node] < 0) continue;
            for (const source of graph.src[node]) {
                const from = group[source];
                if (from < 0 || from === group[node] || end.get(from) === -2) continue;
                if (end.get(from) === end.get(group[node])) continue;
                end.set(from, -2);
                changed = true;
            }
        }
    }
    const first = new Map();
    return group.map((number) => {
        const last = end.get(number) ?? -2;
        if (last === -2) return number;
        if (!first.has(last)) first.set(last, number);
        return first.get(last);
    });
}

// Groups as lists of nodes, the one that all others lead to first, in an order of their edges.
function inOrder(graph, folded, group) {
    const members = new Map();
    for (let node = 0; node < group.length; node += 1) {
        if (group[node] < 0) continue;
        if (!members.has(group[node])) members.set(group[node], []);
        members.get(group[node]).push(node);
    }
    const sources = new Map();
    for (const [number, nodes] of members) {
        const read = new Set();
        for (const node of nodes)
            for (const source of graph.src[node])
                if (!folded[source] && group[source] !== number) read.add(group[source]);
        sources.set(number, read);
    }
    const result = [];
    const seen = new Set();
    const done = new Set();
    const stack = [...members.keys()].reverse();
    while (stack.length) {
        const number = stack.at(-1);
        if (!seen.has(number)) {
            seen.add(number);
            stack.push(...[...sources.get(number)].filter((source) => !seen.has(source)));
            continue;
        }
        stack.pop();
        if (done.has(number)) continue;
        done.add(number);
        const nodes = members.get(number);
        result.push([nodes.at(-1), ...nodes.slice(0, -1)]);
    }
    return result;
}
