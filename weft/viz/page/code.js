// A kernel's program, source and assembly side by side; an axis has one colour in all of them.

import { h, replace } from "./dom.js";
import { axisClass } from "./palette.js";
import { VirtualList } from "./virtual.js";

const LINE = 18;
const LANGUAGES = {
    ll: "LLVM IR",
    c: "C",
    cu: "CUDA",
    cl: "OpenCL",
    metal: "Metal",
    wgsl: "WGSL",
    py: "Python",
    weft: "Listing",
    txt: "Source",
};
const WORDS = new Set(
    (
        "for in if else while return float int double void const global local shared barrier fma " +
        "define entry br label phi load store getelementptr inbounds ret call icmp fcmp select " +
        "add sub mul fmul fadd fdiv xor and or shl lshr ashr sdiv udiv srem urem zext sext trunc " +
        "i1 i8 i16 i32 i64 ptr align splat contract nsw nuw attributes declare target"
    ).split(" "),
);

export function showCode(host, code, model) {
    const axes = code.axes;
    const listing = code.listing.split("\n");
    const source = code.source.replace(/^\n/, "").split("\n");
    const assembly = tidyAssembly(code.assembly).split("\n");
    const panes = [
        pane("program", "Program", "The linear program, as loops", listing, axisNames(axes)),
        pane(
            "source",
            LANGUAGES[code.language] ?? code.language,
            "What was compiled",
            source,
            code.language === "ll" ? loopNames(source, axes) : axisNames(axes),
        ),
        pane("assembly", "Assembly", "What runs", assembly, blockNames(assembly, axes)),
    ];
    const chips = axes.map(([name, kind, size]) =>
        h(
            "span",
            {
                class: `chip ${axisClass(kind)}`,
                data: { axis: name },
                title: `${kind}, ${size} iterations`,
                on: {
                    mouseenter: () => mark(name, true),
                    mouseleave: () => mark(name, false),
                },
            },
            h("b", {}, name),
            ` ${kind.toLowerCase().replace("_", " ")} `,
            h("i", {}, size),
        ),
    );
    const marked = new Set();
    const mark = (name, isOn) => {
        if (isOn) marked.add(name);
        else marked.delete(name);
        host.querySelector(".code").dataset.marked = [...marked].join(" ");
        for (const element of host.querySelectorAll("[data-axis]"))
            element.classList.toggle("marked", marked.has(element.dataset.axis));
    };
    replace(
        host,
        h(
            "div",
            { class: "code" },
            h(
                "div",
                { class: "axes" },
                h("span", { class: "muted" }, axes.length ? "Loops" : "No loops"),
                chips,
            ),
            h(
                "div",
                { class: "panes" },
                panes.map((one) => one.element),
            ),
        ),
    );
    for (const one of panes) one.start();
}

function pane(id, title, why, lines, names) {
    const body = h("div", { class: "pane-body" });
    const copied = h(
        "button",
        {
            type: "button",
            class: "icon",
            title: "Copy",
            on: {
                click: async () => {
                    try {
                        await navigator.clipboard.writeText(lines.join("\n"));
                        copied.textContent = "Copied";
                    } catch {
                        copied.textContent = "Not allowed";
                    }
                    setTimeout(() => {
                        copied.textContent = "Copy";
                    }, 1200);
                },
            },
        },
        "Copy",
    );
    const count = lines.length === 1 && !lines[0] ? 0 : lines.length;
    const element = h(
        "section",
        { class: "pane", id: `pane-${id}`, "aria-label": title },
        h(
            "div",
            { class: "pane-head" },
            h(
                "button",
                {
                    type: "button",
                    class: "pane-title",
                    title: `${why}; click to show it alone`,
                    on: { click: () => alone(element) },
                },
                title,
            ),
            h("span", { class: "muted" }, `${count.toLocaleString("en-US")} lines`),
            h("span", { class: "grow" }),
            copied,
        ),
        body,
    );
    const start = () => {
        if (!count) {
            replace(body, h("p", { class: "empty" }, "This device shows none."));
            return;
        }
        const list = new VirtualList(
            body,
            LINE,
            (index) =>
                h(
                    "div",
                    { class: "code-line" },
                    h("span", { class: "number" }, String(index + 1)),
                    tokens(lines[index], names, id),
                ),
            { class: "virtual lines" },
        );
        const widest = lines.reduce((most, line) => Math.max(most, line.length), 0);
        list.filler.style.minWidth = `${Math.min(1200, widest) * 7.3 + 64}px`;
        list.setCount(lines.length);
        // tables of constants come first; what one wants to see is the function
        const first = lines.findIndex((line) => /^[^.\s].*:$/.test(line));
        if (id === "assembly" && first > 0) list.element.scrollTop = first * LINE;
    };
    return { element, start };
}

function alone(element) {
    const panes = element.parentElement;
    const isAlone = element.classList.toggle("alone");
    for (const other of panes.children) if (other !== element) other.classList.remove("alone");
    panes.classList.toggle("one", isAlone);
}

function axisNames(axes) {
    return new Map(axes.map(([name, kind]) => [name, { axis: name, kind }]));
}

// The k-th loop of the IR is the k-th axis: neither is reordered after the program is linear.
function loopNames(lines, axes) {
    const names = new Map();
    let next = 0;
    for (const line of lines) {
        const found = /^(loop\d+):/.exec(line);
        if (found && !names.has(found[1]) && next < axes.length) {
            names.set(found[1], { axis: axes[next][0], kind: axes[next][1] });
            next += 1;
        }
    }
    return next === axes.length ? names : new Map();
}

// A label that a later line jumps back to heads a loop; as many of them as axes are those.
function blockNames(lines, axes) {
    const at = new Map();
    lines.forEach((line, index) => {
        const label = /^([.\w]+):/.exec(line);
        if (label) at.set(label[1], index);
    });
    const heads = new Set();
    lines.forEach((line, index) => {
        const jump = /^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s.*?([.\w]+)$/.exec(line);
        if (jump && at.has(jump[1]) && at.get(jump[1]) <= index) heads.add(jump[1]);
    });
    const ordered = [...heads].sort((left, right) => at.get(left) - at.get(right));
    if (ordered.length !== axes.length) return new Map();
    return new Map(
        ordered.map((label, index) => [label, { axis: axes[index][0], kind: axes[index][1] }]),
    );
}

// Without what only an assembler wants to know.
function tidyAssembly(text) {
    return text
        .split("\n")
        .filter(
            (line) =>
                !/^\s*\.(file|type|size|globl|p2align|section|ident|text|cfi_\w+|addrsig\w*)\b/.test(
                    line,
                ),
        )
        .join("\n")
        .trim()
        .replace(/\t/g, "    ");
}

const PIECES =
    /(\/\/.*$|#.*$|;.*$)|("[^"]*")|(%?[A-Za-z_.][\w.]*)|(\b\d[\w.]*|0x[0-9a-fA-F]+)|(\s+)|(.)/g;

function tokens(line, names, pane) {
    const result = [];
    // in assembly # and ; start nothing but comments of other dialects
    for (const [piece, comment, quoted, word, digits] of line.matchAll(PIECES)) {
        if (comment) {
            const kind = /^#\s*([A-Z_]+)$/.exec(comment);
            result.push(
                h("span", { class: kind ? `comment ${axisClass(kind[1])}` : "comment" }, piece),
            );
        } else if (quoted) result.push(h("span", { class: "string" }, piece));
        else if (word) {
            const bare = piece.replace(/^%/, "");
            const named = names.get(bare) ?? names.get(bare.split(".")[0]);
            if (named)
                result.push(
                    h(
                        "span",
                        { class: `axis ${axisClass(named.kind)}`, data: { axis: named.axis } },
                        piece,
                    ),
                );
            else if (WORDS.has(piece)) result.push(h("span", { class: "word" }, piece));
            else if (pane === "assembly" && result.length <= 1 && line.startsWith(" "))
                result.push(h("span", { class: "word" }, piece));
            else if (/^(p|acc|local|buf)\d/.test(bare))
                result.push(h("span", { class: "memory" }, piece));
            else result.push(piece);
        } else if (digits) result.push(h("span", { class: "digits" }, piece));
        else result.push(piece);
    }
    return result;
}
