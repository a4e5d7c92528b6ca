// Time from left to right: the compiler's phases, the kernels of each device, memory in use.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count, mark, place, time } from "./format.js";
import { seriesOf, theme } from "./palette.js";

const LEFT = 128;
const RULER = 28;
const BAR = 20;
const GAP = 18;
const MEMORY = { least: 120, most: 300 };

export class Timeline {
    constructor(host, model, go) {
        this.model = model;
        this.go = go;
        this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Timeline" });
        this.tip = h("div", { class: "tip", hidden: true });
        this.note = h("span", { class: "muted" });
        this.area = h("div", { class: "timeline-area" }, this.canvas, this.tip);
        const button = (text, title, run) =>
            h("button", { type: "button", class: "icon", title, on: { click: run } }, text);
        replace(
            host,
            h(
                "div",
                { class: "timeline", id: "timeline" },
                h(
                    "div",
                    { class: "toolbar" },
                    h("h1", {}, "Timeline"),
                    this.note,
                    h("span", { class: "grow" }),
                    h(
                        "span",
                        { class: "zoom" },
                        button("−", "Zoom out (-)", () => this.zoom(1 / 1.5)),
                        button("+", "Zoom in (+)", () => this.zoom(1.5)),
                        button("All", "Show all (f)", () => this.all()),
                    ),
                ),
                this.area,
            ),
        );
        this.context = this.canvas.getContext("2d");
        this.watcher = new ResizeObserver(() => this.resize());
    }

    async open() {
        const data = await ask("timeline");
        if (this.isGone) return;
        this.length = Math.max(1, data.seconds * 1e6);
        this.lanes = [
            ...spanLanes(data.spans),
            ...deviceLanes(this.model, data.launches),
            ...memoryLanes(data.memory, this.length),
        ];
        const shown = data.launches.item.length;
        const dropped = this.model.index.dropped;
        const lane = h(
            "span",
            {},
            `${count(shown, "launch", "launches")} in ${time(data.seconds)}`,
            dropped ? `; ${count(dropped)} more are only counted` : null,
        );
        replace(this.note, lane);
        this.area.parentElement.dataset.launches = shown;
        this.area.parentElement.dataset.lanes = this.lanes.map((one) => one.label).join("|");
        this.place();
        this.all();
        this.watcher.observe(this.area);
        this.listen();
    }

    // lanes of memory share what room is left
    place() {
        const charts = this.lanes.filter((lane) => lane.isChart);
        const fixed = this.lanes.reduce(
            (sum, lane) => sum + GAP + (lane.isChart ? 0 : lane.height),
            RULER + 8,
        );
        const room = charts.length ? (this.area.clientHeight - fixed - 12) / charts.length : 0;
        for (const lane of charts)
            lane.height = Math.min(MEMORY.most, Math.max(MEMORY.least, room));
        let y = RULER + 8;
        for (const lane of this.lanes) {
            lane.y = y;
            y += lane.height + GAP;
        }
        this.height = y;
    }

    all() {
        const first = Math.min(
            ...this.lanes.flatMap((lane) =>
                lane.start && lane.start.length ? [lane.start[0]] : [],
            ),
            this.length,
        );
        this.from = first === this.length ? 0 : Math.max(0, first - this.length * 0.01);
        this.to = this.length * 1.02;
        this.draw();
    }

    zoom(factor, at = 0.5) {
        const center = this.from + (this.to - this.from) * at;
        const width = Math.min(this.length * 1.05, Math.max(0.5, (this.to - this.from) / factor));
        this.from = Math.min(this.length, Math.max(-this.length * 0.02, center - width * at));
        this.to = this.from + width;
        this.area.dataset.width = width.toFixed(1);
        this.draw();
    }

    listen() {
        let drag = null;
        const plot = () => this.area.clientWidth - LEFT;
        this.canvas.addEventListener(
            "wheel",
            (event) => {
                event.preventDefault();
                const unit = event.deltaMode === 1 ? 16 : 1;
                if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
                    this.pan(((event.deltaX || event.deltaY) * unit) / plot());
                else
                    this.zoom(
                        Math.exp(-event.deltaY * unit * 0.002),
                        Math.min(1, Math.max(0, (event.offsetX - LEFT) / plot())),
                    );
            },
            { passive: false },
        );
        this.canvas.addEventListener("pointerdown", (event) => {
            this.canvas.setPointerCapture(event.pointerId);
            drag = { x: event.clientX, moved: false };
        });
        this.canvas.addEventListener("pointermove", (event) => {
            if (drag && (drag.moved || Math.abs(event.clientX - drag.x) > 3)) {
                this.pan((drag.x - event.clientX) / plot());
                drag = { x: event.clientX, moved: true };
            }
            this.hover(event);
        });
        this.canvas.addEventListener("pointerup", (event) => {
            const hit = drag && !drag.moved ? this.hit(event) : null;
            drag = null;
            if (hit && hit.item >= 0) this.go(`#/item/${hit.item}`);
        });
        this.canvas.addEventListener("pointerleave", () => {
            this.tip.hidden = true;
        });
    }

    pan(share) {
        const step = (this.to - this.from) * share;
        this.from += step;
        this.to += step;
        this.draw();
    }

    key(event) {
        if (!this.lanes) return false;
        const actions = {
            f: () => this.all(),
            "+": () => this.zoom(1.5),
            "=": () => this.zoom(1.5),
            "-": () => this.zoom(1 / 1.5),
            ArrowLeft: () => this.pan(-0.2),
            ArrowRight: () => this.pan(0.2),
        };
        actions[event.key]?.();
        return actions[event.key] !== undefined;
    }

    // ------------------------------------------------------------ what is under the pointer
    hit(event) {
        const lane = this.lanes.find(
            (one) => event.offsetY >= one.y && event.offsetY < one.y + one.height,
        );
        if (!lane || event.offsetX < LEFT) return null;
        const width = this.area.clientWidth - LEFT;
        const at = this.from + ((event.offsetX - LEFT) / width) * (this.to - this.from);
        return lane.at(
            at,
            ((this.to - this.from) / width) * 3,
            Math.floor((event.offsetY - lane.y) / BAR),
        );
    }

    hover(event) {
        const hit = this.hit(event);
        this.tip.hidden = hit === null;
        this.canvas.style.cursor = hit && hit.item >= 0 ? "pointer" : "default";
        if (hit === null) return;
        replace(
            this.tip,
            h("strong", { class: "mono" }, hit.title),
            hit.lines.map((line) => h("div", {}, line)),
        );
        const left = Math.min(event.offsetX + 14, this.area.clientWidth - this.tip.offsetWidth - 8);
        this.tip.style.left = `${Math.max(8, left)}px`;
        this.tip.style.top = `${event.offsetY + 18}px`;
    }

    // ------------------------------------------------------------ drawing
    resize() {
        const ratio = window.devicePixelRatio || 1;
        const width = this.area.clientWidth;
        if (!width) return;
        this.place();
        const height = Math.max(this.area.clientHeight, this.height);
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(height * ratio);
        this.canvas.style.height = `${height}px`;
        this.paint();
    }

    draw() {
        if (this.pending) return;
        this.pending = requestAnimationFrame(() => {
            this.pending = 0;
            this.paint();
        });
    }

    redraw() {
        if (this.lanes) this.draw();
    }

    paint() {
        const colors = theme();
        const context = this.context;
        const ratio = window.devicePixelRatio || 1;
        const width = this.canvas.width / ratio;
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.fillStyle = colors.background;
        context.fillRect(0, 0, width, this.canvas.height / ratio);
        const scale = (width - LEFT) / (this.to - this.from);
        const view = {
            from: this.from,
            to: this.to,
            scale,
            left: LEFT,
            width,
            x: (at) => LEFT + (at - this.from) * scale,
        };
        this.paintRuler(context, colors, view);
        context.textBaseline = "middle";
        for (const lane of this.lanes) {
            context.save();
            context.beginPath();
            context.rect(LEFT, lane.y - 2, width - LEFT, lane.height + 4);
            context.clip();
            lane.paint(context, colors, view, lane.y);
            context.restore();
            context.fillStyle = colors.text;
            context.font = `600 12px ${colors.sans}`;
            context.fillText(lane.label, 16, lane.y + 10);
            context.fillStyle = colors.muted;
            context.font = `11px ${colors.sans}`;
            context.fillText(lane.detail, 16, lane.y + 26);
        }
    }

    paintRuler(context, colors, view) {
        const wanted = (view.to - view.from) / Math.max(2, (view.width - LEFT) / 110);
        const power = 10 ** Math.floor(Math.log10(wanted));
        const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= wanted);
        context.font = `11px ${colors.sans}`;
        context.textBaseline = "middle";
        for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) {
            const x = Math.round(view.x(at)) + 0.5;
            if (x < LEFT) continue;
            context.strokeStyle = colors.line;
            context.lineWidth = 1;
            context.beginPath();
            context.moveTo(x, RULER);
            context.lineTo(x, this.canvas.height);
            context.stroke();
            context.fillStyle = colors.muted;
            context.fillText(at <= step / 2 ? "0" : mark(at / 1e6), x + 4, RULER / 2);
        }
    }

    dispose() {
        this.isGone = true;
        this.watcher.disconnect();
        cancelAnimationFrame(this.pending);
    }
}

function firstAfter(starts, at) {
    let low = 0;
    let high = starts.length;
    while (low < high) {
        const middle = (low + high) >> 1;
        if (starts[middle] <= at) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Bars in one row, by start. Those narrower than a pixel are drawn together.
function paintBars(context, colors, view, y, { start, length }, labelOf, colorOf) {
    let filled = -Infinity;
    for (
        let index = Math.max(0, firstAfter(start, view.from) - 1);
        index < start.length && start[index] <= view.to;
        index += 1
    ) {
        const left = view.x(start[index]);
        const width = Math.max(1, length[index] * view.scale);
        if (left + width <= filled + 0.4) continue;
        context.fillStyle = colorOf(index);
        context.fillRect(left, y, width - (width > 4 ? 1 : 0), BAR - 3);
        filled = left + width;
        if (width > 44) {
            const visible = Math.max(left, view.left);
            context.save();
            context.beginPath();
            context.rect(visible, y, left + width - visible - 4, BAR);
            context.clip();
            context.fillStyle = colors.onBar;
            context.font = `11px ${colors.mono}`;
            context.fillText(labelOf(index), visible + 5, y + (BAR - 3) / 2 + 0.5);
            context.restore();
        }
    }
}

// The bar under a time, or the nearest within `slack`.
function barAt({ start, length }, at, slack) {
    const index = firstAfter(start, at + slack) - 1;
    return index < 0 || at > start[index] + Math.max(length[index], slack) ? -1 : index;
}

const PHASES = { realize: "constant", schedule: "movement", compile: "memory", lower: "reduce" };

function spanLanes(spans) {
    const threads = new Map();
    for (const span of spans) {
        if (!threads.has(span[2])) threads.set(span[2], []);
        threads.get(span[2]).push(span);
    }
    return [...threads].map(([thread, own]) => {
        const depth = own.reduce((most, span) => Math.max(most, span[3]), 0) + 1;
        const levels = Array.from({ length: depth }, (_, level) => {
            const rows = own.filter((span) => span[3] === level);
            return {
                rows,
                start: rows.map((span) => span[4]),
                length: rows.map((span) => span[5]),
            };
        });
        const label = ([name, detail]) => `${name} ${detail}`.trim();
        return {
            label: "Compiler",
            detail: thread === "MainThread" ? "main thread" : thread,
            height: depth * BAR,
            start: own.map((span) => span[4]),
            paint: (context, colors, view, y) =>
                levels.forEach((level, number) =>
                    paintBars(
                        context,
                        colors,
                        view,
                        y + number * BAR,
                        level,
                        (index) => label(level.rows[index]),
                        (index) => colors[PHASES[level.rows[index][0]]] || colors.math,
                    ),
                ),
            at: (at, slack, row) => {
                const index = levels[row] ? barAt(levels[row], at, slack) : -1;
                return index < 0
                    ? null
                    : {
                          title: label(levels[row].rows[index]),
                          lines: [time(levels[row].length[index] / 1e6)],
                          item: -1,
                      };
            },
        };
    });
}

function deviceLanes(model, launches) {
    const devices = new Map();
    launches.item.forEach((item, index) => {
        const { device } = model.items[item];
        if (!devices.has(device)) devices.set(device, { start: [], length: [], item: [] });
        const lane = devices.get(device);
        lane.start.push(launches.start[index]);
        lane.length.push(launches.length[index]);
        lane.item.push(item);
    });
    return [...devices].map(([device, lane]) => {
        const order = lane.start
            .map((_, index) => index)
            .sort((left, right) => lane.start[left] - lane.start[right]);
        const bars = {
            start: order.map((index) => lane.start[index]),
            length: order.map((index) => lane.length[index]),
            item: order.map((index) => lane.item[index]),
        };
        const series = new Map(model.items.map((item) => [item.number, seriesOf(item.name)]));
        return {
            label: device,
            detail: "kernels",
            height: BAR * 2,
            start: bars.start,
            paint: (context, colors, view, y) =>
                paintBars(
                    context,
                    colors,
                    view,
                    y,
                    bars,
                    (index) => model.items[bars.item[index]].name,
                    (index) => colors.series[series.get(bars.item[index])],
                ),
            at: (at, slack) => {
                const index = barAt(bars, at, slack);
                if (index < 0) return null;
                const item = model.items[bars.item[index]];
                return {
                    title: item.name,
                    lines: [
                        `${time(bars.length[index] / 1e6)} at ${time(bars.start[index] / 1e6)}`,
                        place(item.origin),
                        "Click to open",
                    ].filter(Boolean),
                    item: item.number,
                };
            },
        };
    });
}

function memoryLanes(memory, length) {
    return Object.entries(memory).map(([device, { time: times, bytes: sizes }]) => {
        const peak = sizes.reduce((most, size) => Math.max(most, size), 0) || 1;
        const lane = {
            label: `${device} memory`,
            detail: `peak ${bytes(peak)}`,
            height: MEMORY.least,
            isChart: true,
            start: times,
            paint: (context, colors, view, y) => {
                const floor = y + lane.height;
                const height = (size) => floor - (size / peak) * (lane.height - 12);
                const first = Math.max(0, firstAfter(times, view.from) - 1);
                context.beginPath();
                context.moveTo(view.left, floor);
                let last = first > 0 || times[0] <= view.from ? height(sizes[first]) : floor;
                context.lineTo(view.left, last);
                let column = view.left;
                let highest = last;
                for (
                    let index = first;
                    index < times.length && times[index] <= view.to;
                    index += 1
                ) {
                    const x = Math.max(view.left, view.x(times[index]));
                    // many changes within a pixel: its highest point stays visible
                    if (Math.floor(x) === column && height(sizes[index]) >= highest) {
                        last = height(sizes[index]);
                        continue;
                    }
                    column = Math.floor(x);
                    highest = height(sizes[index]);
                    context.lineTo(x, last);
                    last = highest;
                    context.lineTo(x, last);
                }
                // what happened within the last pixel, then level to where the program ended
                context.lineTo(column + 1, last);
                const end = Math.min(view.width, view.x(length));
                context.lineTo(end, last);
                context.strokeStyle = colors.accent;
                context.lineWidth = 1.4;
                context.stroke();
                context.lineTo(end, floor);
                context.closePath();
                context.fillStyle = colors.memoryFill;
                context.fill();
            },
            at: (at) => {
                const index = firstAfter(times, at) - 1;
                return index < 0
                    ? null
                    : {
                          title: bytes(sizes[index]),
                          lines: [`in use on ${device} at ${time(at / 1e6)}`],
                          item: -1,
                      };
            },
        };
        return lane;
    });
}
