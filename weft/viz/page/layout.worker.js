// Lays a graph out, away from the page's own thread.
//
// In: a graph in columns (see weft/viz/graphs.py) and options. Out: boxes and edges.
// Small graphs are laid out by dagre, large ones by the layers below, which take linear time.

importScripts("vendor/dagre.min.js", "lines.js");

const CHARACTER = 6.75;
const PADDING = 14;
const TITLE_HEIGHT = 28;
const LINE_HEIGHT = 15;
// dagre puts a node into each layer that an edge crosses: with more than this one would wait for it
const MOST_FOR_DAGRE = 900;
const ROW_OF_A_LAYER = 48;

onmessage = (event) => {
    const { id, graph, options } = event.data;
    try {
        postMessage({ id, ...layOut(graph, options) });
    } catch (error) {
        postMessage({ id, error: String((error && error.message) || error) });
    }
};

function layOut(graph, options) {
    const text = (index) => (index < 0 ? "" : graph.strings[index]);
    const ops = graph.op.map(text);
    const folded = options.leaves ? ops.map(() => false) : foldLeaves(graph, ops);
    const expanded = new Set(options.expanded || []);
    const classes = options.collapse ? classesOf(graph, ops) : null;
    const groups = options.lines
        ? groupsOfLines(graph, ops, folded, expanded)
        : groupsOf(graph, ops, folded, classes, expanded);
    const every = boxesOf(graph, ops, text, folded, groups);
    if (options.lines) nameLines(graph, text, every.boxes, options.lineTexts || []);
    const { boxes, edges } = options.collapse
        ? foldChains(every.boxes, every.edges, groups.expanded)
        : every;
    const small =
        boxes.length <= MOST_FOR_DAGRE && boxes.length + crossings(boxes, edges) <= MOST_FOR_DAGRE;
    if (boxes.length) (small ? withDagre : withLayers)(boxes, edges);
    const width = boxes.reduce((most, box) => Math.max(most, box.x + box.width / 2), 0);
    const height = boxes.reduce((most, box) => Math.max(most, box.y + box.height / 2), 0);
    return { boxes, edges, width, height, engine: small ? "dagre" : "layers", nodes: ops.length };
}

// Constants and axes are shown inside the boxes that use them: they are most of a kernel's edges.
function foldLeaves(graph, ops) {
    const folded = [];
    const root = ops.length - 1;
    for (let node = 0; node < ops.length; node += 1) {
        const op = ops[node];
        const sources = graph.src[node];
        const isLeaf =
            op === "CONST" ||
            op === "VARIABLE" ||
            ((op === "RANGE" || op === "SPECIAL") && sources.every((source) => folded[source]));
        const isSplat =
            op === "VECTORIZE" &&
            sources.length > 0 &&
            sources.every((source) => source === sources[0]) &&
            ops[sources[0]] === "CONST";
        folded.push(node !== root && (isLeaf || isSplat));
    }
    return folded;
}

// Nodes that are computed alike: the same ops over alike sources, whatever the constants in them.
function classesOf(graph, ops) {
    const numbers = new Map();
    const classes = [];
    for (let node = 0; node < ops.length; node += 1) {
        const ignored = ops[node] === "CONST" || ops[node] === "ACC" || ops[node] === "GEP";
        const argument = ignored ? "" : graph.arg[node];
        const isNew = graph.mark[node] === 2;
        const sources = graph.src[node].map((source) => classes[source]);
        const key = [graph.op[node], graph.dtype[node], argument, isNew, ...sources].join("|");
        if (!numbers.has(key)) numbers.set(key, numbers.size);
        classes.push(numbers.get(key));
    }
    return classes;
}

function groupsOf(graph, ops, folded, classes, expanded) {
    const groups = [];
    const first = new Map();
    const byNode = new Array(ops.length).fill(-1);
    // a class is named by its first member, whose id stays the same from request to request
    const nameOf = new Map();
    for (let node = 0; node < ops.length; node += 1) {
        if (folded[node]) continue;
        const own = classes ? classes[node] : -1;
        if (classes && !nameOf.has(own)) nameOf.set(own, graph.id[node]);
        const name = classes ? nameOf.get(own) : graph.id[node];
        const merged = classes && !expanded.has(name) && first.has(own);
        if (merged) {
            byNode[node] = first.get(own);
            groups[byNode[node]].members.push(node);
            continue;
        }
        if (classes && !first.has(own)) first.set(own, groups.length);
        byNode[node] = groups.length;
        groups.push({ members: [node], name });
    }
    return { list: groups, byNode, expanded };
}

// Memory that is there before, and views of it: a line's box reads it without an arrow.
function hideInputs(graph, ops, folded) {
    const hidden = [...folded];
    for (let node = 0; node < ops.length - 1; node += 1) {
        const isView = MOVEMENT.has(ops[node]) && graph.src[node].every((source) => hidden[source]);
        hidden[node] ||= ops[node] === "BUFFER" || ops[node] === "PARAM" || isView;
    }
    return hidden;
}

// One group for a line, but for those that the reader unfolded.
function groupsOfLines(graph, ops, folded, expanded) {
    const list = [];
    const byNode = new Array(ops.length).fill(-1);
    const hidden = hideInputs(graph, ops, folded);
    const add = (members, name) => {
        for (const node of members) byNode[node] = list.length;
        list.push({ members, name });
    };
    // what is unfolded is read by its neighbours only where it ends, so it keeps its place
    for (const members of lineGroups(graph, hidden)) {
        const name = graph.id[members[0]];
        if (members.length > 1 && !expanded.has(name)) add(members, name);
        else for (const node of [...members].sort((a, b) => a - b)) add([node], name);
    }
    return { list, byNode, expanded };
}

// A box of several nodes says which line they are from, how many they are, and what they give.
function nameLines(graph, text, boxes, texts) {
    for (const box of boxes) {
        if (box.members.length === 1) continue;
        const origin = box.members.map((node) => graph.origin[node]).find((line) => line >= 0);
        const [path, line] = origin === undefined ? ["", 0] : graph.origins[origin];
        const where = path ? `${path.slice(path.lastIndexOf("/") + 1)}:${line}` : "no line";
        const gives = [text(graph.dtype[box.node]), text(graph.shape[box.node])];
        box.title = short(texts[origin] || where, 44);
        box.lines = [
            `${where}  ${box.members.length} nodes`,
            short(gives.filter(Boolean).join("  "), 44),
        ].filter(Boolean);
        box.chips = [];
        box.isLine = true;
        const widest = Math.max(
            box.title.length * (CHARACTER + 0.9),
            ...box.lines.map((one) => one.length * CHARACTER),
        );
        box.width = Math.max(64, Math.round(widest + 2 * PADDING));
        box.height = TITLE_HEIGHT + box.lines.length * LINE_HEIGHT;
    }
}

function chipOf(graph, ops, text, node) {
    const op = ops[node];
    if (op === "VECTORIZE") {
        const inner = chipOf(graph, ops, text, graph.src[node][0]);
        return {
            ...inner,
            text: `${inner.text} ×${graph.src[node].length}`,
            mark: graph.mark[node],
        };
    }
    const argument = text(graph.arg[node]);
    const [name, kind] = argument.split(" ");
    const isAxis = op === "RANGE" || op === "SPECIAL";
    const short =
        op === "CONST" ? (argument.length > 12 ? `${argument.slice(0, 11)}…` : argument) : name;
    return { text: short, kind: isAxis ? kind || "GLOBAL" : "", mark: graph.mark[node], node };
}

function boxesOf(graph, ops, text, folded, groups) {
    const boxes = [];
    const edges = [];
    groups.list.forEach((group, number) => {
        const node = group.members[0];
        const argument = text(graph.arg[node]);
        const chips = [];
        const targets = new Set();
        for (const member of group.members) {
            for (const source of graph.src[member]) {
                const from = groups.byNode[source];
                if (from >= 0 && from !== number) targets.add(from);
            }
        }
        graph.src[node].forEach((source, position) => {
            if (!folded[source] || chips.length >= 6) return;
            const chip = chipOf(graph, ops, text, source);
            const others = group.members.some((member) => graph.src[member][position] !== source);
            // of numbers that differ from copy to copy the first stands for all
            chips.push(others ? { ...chip, text: `${chip.text}…` } : chip);
        });
        for (const from of targets) edges.push({ from, to: number });
        // index arithmetic is all of this dtype: naming it says nothing
        const dtype = text(graph.dtype[node]) === "weakint" ? "" : text(graph.dtype[node]);
        const detail = [short(argument, 34), dtype, short(text(graph.shape[node]), 30)].filter(
            Boolean,
        );
        const title = ops[node] + (group.members.length > 1 ? `  ×${group.members.length}` : "");
        const chipText = chips
            .map((chip) => chip.text.length * CHARACTER + 12)
            .reduce((sum, width) => sum + width + 4, 0);
        const lines =
            detail.length > 2 || detail.join("  ").length > 40
                ? [detail[0], detail.slice(1).join("  ")]
                : detail.length
                  ? [detail.join("  ")]
                  : [];
        const width =
            Math.max(
                title.length * (CHARACTER + 0.9),
                chipText,
                ...lines.map((line) => line.length * CHARACTER),
            ) +
            2 * PADDING;
        boxes.push({
            title,
            lines,
            chips,
            node,
            members: group.members,
            name: group.name,
            isExpanded: groups.expanded.has(group.name),
            mark: Math.max(...group.members.map((member) => graph.mark[member])),
            op: ops[node],
            kind: ops[node] === "RANGE" ? argument.split(" ")[1] || "" : "",
            width: Math.max(64, Math.round(width)),
            height: TITLE_HEIGHT + lines.length * LINE_HEIGHT + (chips.length ? 20 : 0),
            x: 0,
            y: 0,
        });
    });
    return { boxes, edges };
}

const MOVEMENT = new Set(["RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP", "STRIDE"]);

// Movement ops that only follow each other are one box: together they are one view.
function foldChains(boxes, edges, expanded) {
    const uses = new Int32Array(boxes.length);
    const sources = boxes.map(() => []);
    for (const { from, to } of edges) {
        uses[from] += 1;
        sources[to].push(from);
    }
    const into = boxes.map((_, number) => number);
    const chains = new Map();
    // sources come first, so a chain grows from its source to its user
    boxes.forEach((box, number) => {
        const [source] = sources[number];
        const follows =
            sources[number].length === 1 &&
            uses[source] === 1 &&
            MOVEMENT.has(box.op) &&
            MOVEMENT.has(boxes[source].op);
        if (
            !follows ||
            box.members.length > 1 ||
            boxes[source].members.length > 1 ||
            expanded.has(boxes[into[source]].name)
        )
            return;
        const head = into[source];
        into[number] = head;
        if (!chains.has(head)) chains.set(head, [head]);
        chains.get(head).push(number);
    });
    if (!chains.size) return { boxes, edges };
    for (const [head, numbers] of chains) {
        const parts = numbers.map((number) => boxes[number]);
        const lines = parts.map((part) =>
            `${part.title.toLowerCase()} ${part.lines[0] ?? ""}`.trim(),
        );
        const shown =
            lines.length > 7
                ? [...lines.slice(0, 3), `… ${lines.length - 6} more`, ...lines.slice(-3)]
                : lines;
        const last = parts[parts.length - 1];
        boxes[head] = {
            ...boxes[head],
            title: `${parts.length} VIEWS`,
            chain: true,
            members: parts.flatMap((part) => part.members),
            node: last.node,
            chips: [],
            lines: shown.map((line) => short(line, 42)),
            mark: Math.max(...parts.map((part) => part.mark)),
            name: boxes[head].name,
        };
        const widest = Math.max(...boxes[head].lines.map((line) => line.length));
        boxes[head].width = widest * CHARACTER + 2 * PADDING;
        boxes[head].height = TITLE_HEIGHT + boxes[head].lines.length * LINE_HEIGHT;
    }
    const kept = boxes.map((_, number) => number).filter((number) => into[number] === number);
    // a chain stands where its last part did, after all of its sources
    const lastOf = (number) => (chains.has(number) ? chains.get(number).at(-1) : number);
    kept.sort((left, right) => lastOf(left) - lastOf(right));
    const place = new Map(kept.map((number, index) => [number, index]));
    return {
        boxes: kept.map((number) => boxes[number]),
        edges: edges
            .map(({ from, to }) => ({ from: place.get(into[from]), to: place.get(into[to]) }))
            .filter(({ from, to }) => from !== to),
    };
}

function short(text, most) {
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

// How many layers all edges cross, as the longest paths place the boxes. Sources come first.
function crossings(boxes, edges) {
    const depth = new Int32Array(boxes.length);
    const sources = boxes.map(() => []);
    for (const { from, to } of edges) sources[to].push(from);
    for (let number = 0; number < boxes.length; number += 1) {
        for (const source of sources[number])
            depth[number] = Math.max(depth[number], depth[source] + 1);
    }
    return edges.reduce((sum, { from, to }) => sum + Math.max(0, depth[to] - depth[from] - 1), 0);
}

function withDagre(boxes, edges) {
    const graph = new dagre.graphlib.Graph({ multigraph: false, compound: false });
    graph.setGraph({
        rankdir: "TB",
        nodesep: 18,
        ranksep: 26,
        edgesep: 8,
        marginx: 24,
        marginy: 24,
    });
    graph.setDefaultEdgeLabel(() => ({}));
    boxes.forEach((box, number) =>
        graph.setNode(String(number), { width: box.width, height: box.height }),
    );
    for (const edge of edges) graph.setEdge(String(edge.from), String(edge.to));
    dagre.layout(graph);
    boxes.forEach((box, number) => {
        const placed = graph.node(String(number));
        box.x = placed.x;
        box.y = placed.y;
    });
    for (const edge of edges)
        edge.points = graph
            .edge(String(edge.from), String(edge.to))
            .points.map((point) => [point.x, point.y]);
}

// Layers from the root upwards, ordered by where their neighbours are, wide ones in several rows.
function withLayers(boxes, edges) {
    const uses = boxes.map(() => []);
    const sources = boxes.map(() => []);
    for (const { from, to } of edges) {
        uses[from].push(to);
        sources[to].push(from);
    }
    const depth = new Int32Array(boxes.length);
    // boxes stand in an order in which sources come first
    for (let number = boxes.length - 1; number >= 0; number -= 1) {
        for (const user of uses[number]) depth[number] = Math.max(depth[number], depth[user] + 1);
    }
    const layers = [];
    for (let number = 0; number < boxes.length; number += 1)
        (layers[depth[number]] ??= []).push(number);
    const place = new Float64Array(boxes.length);
    const spread = (layer) =>
        layer.forEach((number, index) => {
            place[number] = (index + 0.5) / layer.length;
        });
    layers.forEach(spread);
    const order = (layer, neighbours) => {
        const wish = new Map(
            layer.map((number) => {
                const near = neighbours[number];
                return [
                    number,
                    near.length
                        ? near.reduce((sum, other) => sum + place[other], 0) / near.length
                        : place[number],
                ];
            }),
        );
        layer.sort((left, right) => wish.get(left) - wish.get(right) || left - right);
        spread(layer);
    };
    for (let sweep = 0; sweep < 3; sweep += 1) {
        for (let level = 1; level < layers.length; level += 1) order(layers[level], uses);
        for (let level = layers.length - 2; level >= 0; level -= 1) order(layers[level], sources);
    }
    const rows = layers.flatMap((layer) => {
        const pieces = Math.ceil(layer.length / ROW_OF_A_LAYER);
        return Array.from({ length: pieces }, (_, piece) =>
            layer.filter((_, index) => index % pieces === piece),
        );
    });
    const position = new Float64Array(boxes.length);
    for (const row of rows) placeRow(row, boxes, position, () => 0);
    for (let sweep = 0; sweep < 2; sweep += 1) {
        for (const row of rows)
            placeRow(row, boxes, position, (number) =>
                mean(uses[number], position, position[number]),
            );
        for (let index = rows.length - 1; index >= 0; index -= 1)
            placeRow(rows[index], boxes, position, (number) =>
                mean(sources[number], position, position[number]),
            );
    }
    let left = Infinity;
    boxes.forEach((box, number) => {
        left = Math.min(left, position[number] - box.width / 2);
    });
    let y = 24;
    for (let index = rows.length - 1; index >= 0; index -= 1) {
        const height = Math.max(...rows[index].map((number) => boxes[number].height));
        for (const number of rows[index]) {
            boxes[number].x = position[number] - left + 24;
            boxes[number].y = y + height / 2;
        }
        y += height + 36;
    }
}

function mean(near, position, otherwise) {
    return near.length
        ? near.reduce((sum, other) => sum + position[other], 0) / near.length
        : otherwise;
}

// As near to where each box wants to be as its neighbours in the row allow.
function placeRow(row, boxes, position, wish) {
    const wanted = row.map(wish);
    let edge = -Infinity;
    let shift = 0;
    row.forEach((number, index) => {
        const half = boxes[number].width / 2;
        position[number] = Math.max(wanted[index], edge + half + 18);
        edge = position[number] + half;
        shift += position[number] - wanted[index];
    });
    shift /= row.length || 1;
    for (const number of row) position[number] -= shift;
}
