// One kernel or schedule: its head, its passes and steps, and the graphs before and after them.

import { ask } from "./api.js";
import { showCode } from "./code.js";
import { h, replace, segmented } from "./dom.js";
import { count, fileName, time } from "./format.js";
import { GraphView } from "./graph.js";
import { drawHead } from "./head.js";
import { showNode } from "./inspector.js";
import { lineText } from "./model.js";
import { FAMILY_NAMES } from "./palette.js";
import { VirtualList } from "./virtual.js";

const ROW = 40;
const ALL_OPEN = 300;

// what the reader chose stays from kernel to kernel
const choices = { side: "after", collapse: true, leaves: false, lines: null };
// a program's graph with more nodes is first shown by lines
const READABLE = 400;

export class UnitView {
    constructor(host, model, target, go) {
        this.host = host;
        this.model = model;
        this.target = target;
        this.go = go;
        this.place = { pass: 0, rewrite: -1, step: 0 };
        this.expanded = new Set();
        this.views = {
            before: new GraphView("Before", (box, view) => this.inspect(box, view)),
            after: new GraphView("After", (box, view) => this.inspect(box, view)),
        };
        this.tab = "";
        // A reader may be elsewhere before an answer is there: only the last wish is drawn.
        this.turn = 0;
        this.drawing = 0;
    }

    async open(tab, place) {
        const { unit } = this.target;
        this.head = h("div", { class: "unit-head" });
        this.body = h("div", { class: "unit-body" });
        replace(this.host, h("div", { class: "unit" }, this.head, this.body));
        if (!unit) {
            drawHead(this.head, this.model, this.target, "none");
            replace(
                this.body,
                h(
                    "div",
                    { class: "empty-state" },
                    h(
                        "h1",
                        {},
                        this.target.item?.name === "copy"
                            ? "A copy between devices"
                            : "Not recorded",
                    ),
                    h(
                        "p",
                        {},
                        this.target.item?.name === "copy"
                            ? "It has no program: the bytes move as they are."
                            : "This kernel was not lowered while the recording ran.",
                    ),
                ),
            );
            return;
        }
        await this.show(tab, place);
    }

    async show(tab, place) {
        const turn = ++this.turn;
        const { number } = this.target.unit;
        drawHead(this.head, this.model, this.target, tab);
        if (tab !== this.tab) {
            const answer = ask(tab === "code" ? `code/${number}` : `unit/${number}`);
            if (tab === "code") replace(this.body, h("p", { class: "empty" }, "Opening the code…"));
            this.tab = "";
            const found = await answer;
            if (turn !== this.turn) return;
            this.tab = tab;
            if (tab === "code") showCode(this.body, found, this.model);
            else {
                this.passes = found;
                this.build();
            }
        }
        if (tab !== "code") await this.goTo(place);
    }

    // ------------------------------------------------------------ passes and steps
    build() {
        this.list?.dispose();
        this.rows = undefined;
        const total = this.passes.reduce(
            (sum, pass) =>
                sum + pass.rewrites.reduce((steps, rewrite) => steps + rewrite.rules.length, 0),
            0,
        );
        this.allOpen = total <= ALL_OPEN;
        this.isLarge =
            this.target.unit.kind === "schedule" &&
            this.passes.some((pass) => pass.before > READABLE);
        this.steps = h("div", { class: "steps" });
        this.stage = h("div", { class: "stage" });
        this.toolbar = h("div", { class: "toolbar" });
        this.card = h("div", { class: "step-card", "aria-live": "polite" });
        this.inspector = h("div", { class: "inspector", hidden: true });
        this.graphs = h(
            "div",
            { class: "graphs" },
            this.views.before.element,
            this.views.after.element,
            this.inspector,
            legend(),
        );
        replace(this.stage, this.toolbar, this.card, this.graphs);
        replace(this.body, h("div", { class: "explore" }, this.steps, this.stage));
        this.stepHead = h(
            "div",
            { class: "steps-head" },
            h(
                "span",
                {},
                `${count(this.passes.length, "pass", "passes")} · ${count(total, "step")}`,
            ),
            h("span", { class: "muted" }, "← →"),
        );
        replace(this.steps, this.stepHead);
        if (!this.passes.length)
            this.steps.append(h("p", { class: "empty" }, "No pass was recorded."));
        this.list = new VirtualList(this.steps, ROW, (index) => this.stepRow(this.rows[index]), {
            role: "listbox",
            "aria-label": "Passes and rewrite steps",
            id: "step-list",
        });
        this.makeSearch();
        this.drawToolbar();
    }

    // made once: what is typed there stays when buttons change
    makeSearch() {
        this.searchBox = h("input", {
            type: "search",
            id: "search",
            placeholder: "Search nodes",
            "aria-label": "Search nodes",
            spellcheck: "false",
            autocomplete: "off",
            title: "Op, argument, dtype, shape or source line (/)",
            on: {
                input: () => this.search(),
                keydown: (event) => {
                    if (event.key === "Enter") {
                        event.preventDefault();
                        this.nextMatch(event.shiftKey ? -1 : 1);
                    }
                },
            },
        });
        this.found = h("span", { class: "muted found", id: "found", "aria-live": "polite" });
    }

    listRows() {
        this.rows = [];
        this.passes.forEach((pass, number) => {
            this.rows.push({ pass: number, rewrite: -1, step: 0 });
            if (!this.allOpen && number !== this.place.pass) return;
            pass.rewrites.forEach((rewrite, run) =>
                rewrite.rules.forEach((rule, step) =>
                    this.rows.push({ pass: number, rewrite: run, step, rule }),
                ),
            );
        });
        this.list.setCount(this.rows.length);
    }

    stepRow(row) {
        const pass = this.passes[row.pass];
        const selected =
            row.pass === this.place.pass &&
            row.rewrite === this.place.rewrite &&
            (row.rewrite < 0 || row.step === this.place.step);
        const attributes = {
            href: this.href(row),
            role: "option",
            "aria-selected": String(selected),
            tabindex: "-1",
        };
        if (row.rewrite < 0) {
            const steps = pass.rewrites.reduce((sum, rewrite) => sum + rewrite.rules.length, 0);
            const change = pass.same
                ? "unchanged"
                : `${count(pass.before)} → ${count(pass.after)} nodes`;
            return h(
                "a",
                {
                    ...attributes,
                    class: `step pass${selected ? " selected" : ""}${pass.same ? " same" : ""}`,
                    data: { pass: row.pass },
                },
                h(
                    "div",
                    { class: "line" },
                    h("span", { class: "name" }, pass.name),
                    steps ? h("span", { class: "badge" }, count(steps)) : null,
                ),
                h(
                    "div",
                    { class: "line small" },
                    h("span", {}, change),
                    h("span", {}, pass.seconds > 0 ? time(pass.seconds) : ""),
                ),
            );
        }
        const rule = this.model.rules[row.rule] ?? ["?", "", 0, ""];
        const [, file, line] = rule;
        return h(
            "a",
            {
                ...attributes,
                class: `step rule${selected ? " selected" : ""}`,
                data: { step: row.step, rewrite: row.rewrite },
            },
            h(
                "div",
                { class: "line" },
                h("span", { class: "name mono", title: ruleName(rule) }, ruleName(rule)),
            ),
            h(
                "div",
                { class: "line small" },
                h("span", {}, `${fileName(file)}:${line}`),
                h(
                    "span",
                    { class: "muted" },
                    pass.rewrites.length > 1 ? pass.rewrites[row.rewrite].name : "",
                ),
            ),
        );
    }

    href(row) {
        const tail = row.rewrite < 0 ? "" : `/${row.rewrite}/${row.step}`;
        return `#/${this.target.base}/graph/${row.pass}${tail}`;
    }

    async goTo(place) {
        if (!this.passes.length) {
            this.views.after.clear("No graph");
            return;
        }
        const last = this.passes.length - 1;
        const isFirst = this.rows === undefined;
        const samePass = place.pass === this.place.pass && !isFirst;
        const start = this.passes.findIndex((pass) => !pass.same);
        this.place =
            place.pass === null
                ? { pass: Math.max(0, start), rewrite: -1, step: 0 }
                : { ...place, pass: Math.min(last, Math.max(0, place.pass)) };
        if (isFirst || (!samePass && !this.allOpen)) this.listRows();
        else this.list.refresh();
        this.list.reveal(this.current());
        if (!samePass) this.expanded = new Set();
        await this.drawGraphs(samePass);
    }

    current() {
        return this.rows.findIndex(
            (row) =>
                row.pass === this.place.pass &&
                row.rewrite === this.place.rewrite &&
                (row.rewrite < 0 || row.step === this.place.step),
        );
    }

    move(direction, byPass) {
        if (this.tab !== "graph" || !this.passes.length) return;
        if (byPass) {
            const pass =
                this.place.pass + (direction < 0 && this.place.rewrite >= 0 ? 0 : direction);
            if (pass >= 0 && pass < this.passes.length)
                this.go(this.href({ pass, rewrite: -1, step: 0 }));
            return;
        }
        const row = this.rows[this.current() + direction];
        if (row) this.go(this.href(row));
    }

    // ------------------------------------------------------------ graphs
    drawToolbar() {
        const sides = segmented(
            "Which graph",
            [
                ["before", "Before", "What it was (b)"],
                ["split", "Both", "Side by side (s)"],
                ["after", "After", "What it became (b)"],
            ],
            choices.side,
            (side) => this.setSide(side),
        );
        const toggle = (name, text, title) =>
            h(
                "button",
                {
                    type: "button",
                    class: "toggle",
                    id: `toggle-${name}`,
                    "aria-pressed": String(this.isOn(name)),
                    title,
                    on: { click: () => this.toggle(name) },
                },
                text,
            );
        const button = (text, title, run) =>
            h("button", { type: "button", class: "icon", title, on: { click: run } }, text);
        replace(
            this.toolbar,
            sides,
            toggle(
                "collapse",
                "Fold repeats",
                "Show subgraphs that are computed alike once, and chains of views as one box (c)",
            ),
            toggle("lines", "Fold lines", "Show what one line of the program made as one box (g)"),
            toggle("leaves", "Leaves", "Show constants and axes as boxes of their own (l)"),
            h("span", { class: "grow" }),
            this.found,
            this.searchBox,
            h(
                "span",
                { class: "zoom" },
                button("−", "Zoom out (-)", () => this.zoom(1 / 1.4)),
                button("+", "Zoom in (+)", () => this.zoom(1.4)),
                button("Fit", "Show all (f)", () => this.fit()),
            ),
        );
    }

    shown() {
        return choices.side === "split" ? ["before", "after"] : [choices.side];
    }

    setSide(side) {
        // before and after are looked at from the same place; side by side both have less room
        const keepView = side !== "split" && choices.side !== "split";
        choices.side = side;
        this.drawToolbar();
        this.drawGraphs(keepView);
    }

    isOn(name) {
        return name === "lines" ? (choices.lines ?? this.isLarge) : choices[name];
    }

    toggle(name) {
        choices[name] = !this.isOn(name);
        this.drawToolbar();
        this.drawGraphs(false);
    }

    zoom(factor) {
        for (const side of this.shown()) this.views[side].zoom(factor);
    }

    fit() {
        for (const side of this.shown()) this.views[side].fit();
    }

    async drawGraphs(keepView) {
        const drawing = ++this.drawing;
        const { pass, rewrite, step } = this.place;
        const shown = this.shown();
        this.inspect(null);
        this.graphs.dataset.side = choices.side;
        for (const side of ["before", "after"])
            this.views[side].element.hidden = !shown.includes(side);
        const question = `graph/${this.target.unit.number}/${pass}/${rewrite}/${step}`;
        const options = {
            collapse: choices.collapse,
            leaves: choices.leaves,
            lines: this.isOn("lines"),
            expanded: [...this.expanded],
        };
        try {
            const graphs = await Promise.all(shown.map((side) => ask(`${question}/${side}`)));
            if (drawing !== this.drawing) return;
            // all graphs of a unit name their lines by the same numbers
            if (options.lines)
                options.lineTexts = graphs[0].origins.map((origin) => lineText(this.model, origin));
            this.drawCard(graphs[0]);
            await Promise.all(
                shown.map((side, index) =>
                    graphs[index].op.length
                        ? this.views[side].show(graphs[index], options, keepView)
                        : this.views[side].clear("This pass did not finish."),
                ),
            );
            if (drawing !== this.drawing) return;
            if (this.searchBox.value) this.search();
            this.graphs.dataset.ready = `${pass}/${rewrite}/${step}/${choices.side}`;
        } catch (error) {
            if (drawing !== this.drawing) return;
            replace(this.card, h("p", { class: "error" }, error.message));
        }
    }

    drawCard(graph) {
        const { pass, rewrite } = this.place;
        const about = this.passes[pass];
        if (rewrite < 0 || !graph.step) {
            replace(
                this.card,
                h(
                    "div",
                    { class: "rule-line" },
                    h("strong", {}, about.name),
                    h("span", { class: "muted" }, about.why),
                    h(
                        "span",
                        { class: "muted right" },
                        about.same
                            ? "changed nothing"
                            : `${count(about.before)} → ${count(about.after)} nodes`,
                    ),
                ),
            );
            return;
        }
        const [before, after, rule] = graph.step;
        const aboutRule = this.model.rules[rule] ?? ["?", "", 0, ""];
        const [, file, line] = aboutRule;
        replace(
            this.card,
            h(
                "div",
                { class: "rule-line" },
                h("strong", { class: "mono" }, ruleName(aboutRule)),
                h("span", { class: "muted", title: file }, `${fileName(file)}:${line}`),
                h(
                    "span",
                    { class: "muted right" },
                    `${about.name} · step ${this.place.step + 1} of ${about.rewrites[rewrite].rules.length}`,
                ),
            ),
            h(
                "div",
                { class: "change mono" },
                h("span", { class: "was" }, before),
                h("span", { class: "arrow" }, "→"),
                h("span", { class: "is" }, after),
            ),
        );
    }

    // ------------------------------------------------------------ search
    search() {
        const found = this.shown().reduce(
            (sum, side) => sum + this.views[side].search(this.searchBox.value),
            0,
        );
        this.found.textContent = this.searchBox.value.trim()
            ? found
                ? `${count(found)} found`
                : "nothing found"
            : "";
    }

    nextMatch(direction) {
        for (const side of this.shown().reverse()) {
            const view = this.views[side];
            const at = view.next(direction);
            if (at >= 0) {
                this.found.textContent = `${at + 1} of ${view.matches.length}`;
                return;
            }
        }
    }

    focusSearch() {
        if (this.tab === "graph") {
            this.searchBox.focus();
            this.searchBox.select();
        }
    }

    // ------------------------------------------------------------ one node
    inspect(box, view) {
        if (this.inspector)
            showNode(this.inspector, this.model, box, view, () => this.expand(box, view));
    }

    expand(box, view) {
        const key = box.name;
        if (this.expanded.has(key)) this.expanded.delete(key);
        else this.expanded.add(key);
        view.select(-1);
        this.drawGraphs(true);
    }

    escape() {
        for (const side of ["before", "after"])
            if (this.views[side].layout) this.views[side].select(-1);
        if (this.searchBox?.value) {
            this.searchBox.value = "";
            this.search();
        }
    }

    key(event) {
        if (this.tab !== "graph") return false;
        const actions = {
            b: () => this.setSide(choices.side === "before" ? "after" : "before"),
            s: () => this.setSide(choices.side === "split" ? "after" : "split"),
            c: () => this.toggle("collapse"),
            g: () => this.toggle("lines"),
            l: () => this.toggle("leaves"),
            f: () => this.fit(),
            "+": () => this.zoom(1.4),
            "=": () => this.zoom(1.4),
            "-": () => this.zoom(1 / 1.4),
            n: () => this.nextMatch(1),
            N: () => this.nextMatch(-1),
        };
        const action = actions[event.key];
        action?.();
        return action !== undefined;
    }

    redraw() {
        for (const side of ["before", "after"]) this.views[side].draw();
    }

    dispose() {
        this.turn += 1;
        this.drawing += 1;
        this.list?.dispose();
        for (const side of ["before", "after"]) this.views[side].dispose();
    }
}

// A function's name; a rule without one is its own text.
function ruleName([name, , , text]) {
    if (!name.includes("<lambda>")) return name.replace(/<locals>\./g, "");
    const plain = (text || "")
        .replace(/,$/, "")
        .replace(/UPat\.(c?var|cvar)\(("\w+")[^)]*\)/g, (_, kind, label) => label.slice(1, -1));
    return plain || "rule";
}

function legend() {
    return h(
        "div",
        { class: "legend", "aria-hidden": "true" },
        FAMILY_NAMES.map((name) => h("span", { class: `key family-${name}` }, name)),
    );
}
