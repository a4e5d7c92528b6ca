// Which family an op belongs to, and colours as the theme has them.

import { h } from "./dom.js";

const FAMILIES = {
    memory: "BUFFER PARAM LOCAL STAGE INDEX LOAD STORE GATHER COPY CONTIGUOUS AFTER BIND",
    movement:
        "RESHAPE PERMUTE EXPAND PAD SHRINK FLIP STRIDE CAT CONTIGUOUS_BACKWARD DETACH FUNCTION",
    reduce: "REDUCE REDUCE_AXIS ACC ACC_SET ALLREDUCE WMMA",
    logic: "CMPLT CMPNE CMPEQ AND OR XOR SHL SHR WHERE MAX THREEFRY",
    types: "CAST BITCAST VECTORIZE GEP",
    control: "RANGE SPECIAL END IF ENDIF BARRIER FETCH COMMIT WAIT SINK VARIABLE IOTA",
    constant: "CONST",
};
const FAMILY = new Map(
    Object.entries(FAMILIES).flatMap(([family, ops]) => ops.split(" ").map((op) => [op, family])),
);
export const FAMILY_NAMES = [
    ...Object.keys(FAMILIES).filter((name) => name !== "constant"),
    "math",
];
export const AXIS_KINDS = [
    "GLOBAL",
    "THREAD",
    "LOCAL",
    "WARP",
    "LOOP",
    "REDUCE",
    "GROUP_REDUCE",
    "UPCAST",
    "UNROLL",
    "VECTOR",
];

export function family(op) {
    return FAMILY.get(op) ?? "math";
}

let colors = {};

export function readTheme() {
    const root = document.documentElement;
    // a colour is only settled where it is used: the canvas asks for it through an element
    const probe = h("span", { hidden: true });
    root.append(probe);
    const get = (name) => {
        probe.style.color = `var(${name})`;
        return getComputedStyle(probe).color;
    };
    const font = (name) => getComputedStyle(root).getPropertyValue(name).trim();
    colors = {
        background: get("--canvas"),
        text: get("--text"),
        muted: get("--muted"),
        faint: get("--faint"),
        line: get("--line"),
        edge: get("--edge"),
        box: get("--box"),
        accent: get("--accent"),
        added: get("--added"),
        removed: get("--removed"),
        addedSoft: get("--added-soft"),
        removedSoft: get("--removed-soft"),
        found: get("--found"),
        mono: font("--mono"),
        sans: font("--sans"),
        memoryFill: get("--memory-fill"),
        onBar: get("--on-bar"),
    };
    for (const name of [...FAMILY_NAMES, "constant"]) colors[name] = get(`--family-${name}`);
    for (const name of AXIS_KINDS)
        colors[name] = get(`--axis-${name.toLowerCase().replace("_", "-")}`);
    colors.series = Array.from({ length: 10 }, (_, index) => get(`--series-${index}`));
    probe.remove();
    return colors;
}

export function theme() {
    return colors;
}

export function axisClass(kind) {
    return `axis-${String(kind).toLowerCase().replace("_", "-")}`;
}

export function seriesOf(text) {
    let hash = 7;
    for (let index = 0; index < text.length; index += 1)
        hash = (hash * 31 + text.charCodeAt(index)) >>> 0;
    return hash % 10;
}
