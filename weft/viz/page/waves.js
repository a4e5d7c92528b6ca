// Waves over time: what each of them issues when, with the instruction of a moment in the code.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import { bytes, count } from "./format.js";
import { theme } from "./palette.js";
import { VirtualList } from "./virtual.js";

const LEFT = 84;
const RULER = 26;
const ROW = 16;
const GAP = 10;
const LINE = 19;
// kinds of instructions, by the colour that they have
const SERIES = new Map([
    ["vector", 0],
    ["dual", 0],
    ["matrix", 4],
    ["scalar", 7],
    ["memory", 1],
    ["scratch", 1],
    ["scalar memory", 8],
    ["shared", 9],
    ["wait", 3],
    ["hint", 5],
    ["control", 2],
]);

export class Waves {
    constructor(host, model, go) {
        this.host = host;
        this.model = model;
        this.go = go;
        this.canvas = h("canvas", { tabindex: "0", role: "img", "aria-label": "Waves over time" });
        this.tip = h("div", { class: "tip mono", hidden: true });
        this.area = h("div", { class: "waves-area" }, this.canvas, this.tip);
        this.note = h("span", { class: "muted" });
        this.facts = h("div", { class: "wave-facts" });
        this.moment = h("div", { class: "moment mono" });
        this.code = h("div", { class: "wave-code" });
        this.context = this.canvas.getContext("2d");
        this.watcher = new ResizeObserver(() => this.resize());
        this.selected = -1;
        this.at = 0;
    }

    async open(number) {
        const rows = this.model.index.threads;
        const row = rows[number] ?? rows[0];
        const data = row.traced ? await ask(`threads/${row.number}`) : null;
        if (this.isGone) return;
        this.draw_frame(rows, row, data);
        if (data === null) return;
        this.read(data);
        this.all();
        this.watcher.observe(this.area);
        this.listen();
        if (this.waves.length) this.select(0, 0);
        this.root.dataset.ready = row.number;
    }

    draw_frame(rows, row, data) {
        const choose = h(
            "select",
            {
                id: "wave-kernel",
                "aria-label": "Kernel",
                on: { change: (event) => this.go(`#/waves/${event.target.value}`) },
            },
            rows.map((one) =>
                h("option", { value: one.number, selected: one === row }, one.name),
            ),
        );
        const button = (text, title, run) =>
            h("button", { type: "button", class: "icon", title, on: { click: run } }, text);
        this.root = h(
            "div",
            { class: "waves", id: "waves" },
            h(
                "div",
                { class: "toolbar" },
                h("h1", {}, "Waves"),
                choose,
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
            this.facts,
            h(
                "div",
                { class: "waves-body" },
                this.area,
                h("div", { class: "wave-side" }, this.moment, this.code),
            ),
        );
        replace(this.host, this.root);
        replace(this.facts, factsOf(row));
        if (data === null)
            replace(this.area, h("p", { class: "empty" }, "Only counters were kept of this kernel."));
    }

    // rows of lanes, and per line how often it was issued and how long waves stood at it
    read(data) {
        this.data = data;
        this.times = Float64Array.from(data.times);
        this.lineOf = Int32Array.from(data.at);
        this.series = data.kinds.map((kind) => SERIES.get(kind) ?? 6);
        this.waves = data.waves.map(([simd, slot, start, end, first, length]) => ({
            simd,
            slot,
            start,
            end,
            first,
            last: first + length,
        }));
        this.length = this.waves.reduce((most, wave) => Math.max(most, wave.end), 1);
        const keys = [...new Set(this.waves.map((wave) => wave.simd * 64 + wave.slot))].sort(
            (a, b) => a - b,
        );
        this.lanes = [];
        let y = RULER + 4;
        let simd = -1;
        for (const key of keys) {
            if (key >> 6 !== simd && simd >= 0) y += GAP;
            simd = key >> 6;
            this.lanes.push({ simd, slot: key & 63, y, waves: [] });
            y += ROW;
        }
        this.height = y + 12;
        const lane = new Map(this.lanes.map((one) => [one.simd * 64 + one.slot, one]));
        this.waves.forEach((wave, number) => {
            wave.lane = lane.get(wave.simd * 64 + wave.slot);
            wave.lane.waves.push(number);
        });
        this.counts = new Int32Array(data.lines.length);
        this.cycles = new Float64Array(data.lines.length);
        for (const wave of this.waves)
            for (let i = wave.first; i < wave.last; i += 1) {
                this.counts[this.lineOf[i]] += 1;
                this.cycles[this.lineOf[i]] += this.until(wave, i) - this.times[i];
            }
        this.mostCycles = this.cycles.reduce((most, one) => Math.max(most, one), 1);
        const [traced, groups] = data.groups;
        replace(
            this.note,
            `${data.arch} · ${count(this.waves.length, "wave")}, ` +
                `${count(this.times.length, "instruction")}, ${count(this.length, "cycle")}` +
                (traced < groups ? ` · the first ${count(traced)} of ${count(groups)} groups` : ""),
        );
        this.list = new VirtualList(this.code, LINE, (index) => this.line(index), {
            "aria-label": "Code",
        });
        this.list.setCount(data.lines.length);
    }

    until(wave, index) {
        return index + 1 < wave.last ? this.times[index + 1] : wave.end;
    }

    line(index) {
        const share = this.cycles[index] / this.mostCycles;
        const row = h(
            "div",
            {
                class: `wave-line mono series-${this.series[index]}`,
                data: { line: index, now: this.lineNow === index ? "yes" : "no" },
                title: `${count(this.counts[index])} times, ${count(this.cycles[index])} cycles`,
                on: { click: () => this.next(index) },
            },
            h("span", { class: "heat" }),
            h("span", { class: "offset" }, this.data.offsets[index].toString(16).padStart(4, "0")),
            h("span", { class: "swatch" }),
            h("span", { class: "what" }, this.data.lines[index]),
            h("span", { class: "cycles" }, this.counts[index] ? count(this.cycles[index]) : ""),
        );
        row.querySelector(".heat").style.width = `${Math.round(share * 100)}%`;
        return row;
    }

    // ------------------------------------------------------------ one wave, one moment
    select(number, index) {
        const wave = this.waves[number];
        this.selected = number;
        this.at = Math.min(Math.max(index, wave.first), wave.last - 1);
        const before = this.lineNow;
        this.lineNow = this.lineOf[this.at];
        for (const line of [before, this.lineNow]) {
            const row = this.list.rows.get(line);
            if (row) row.dataset.now = line === this.lineNow ? "yes" : "no";
        }
        this.list.reveal(this.lineNow);
        const time = this.times[this.at];
        replace(
            this.moment,
            h("b", {}, `cycle ${count(time)}`),
            ` SIMD ${wave.simd}, slot ${wave.slot} · ` +
                `instruction ${count(this.at - wave.first + 1)} of ${count(wave.last - wave.first)}` +
                ` · ${count(this.until(wave, this.at) - time, "cycle")}`,
        );
        this.root.dataset.line = this.lineNow;
        this.root.dataset.cycle = time;
        this.root.dataset.wave = number;
        this.draw();
    }

    step(by) {
        if (this.selected < 0) return;
        this.select(this.selected, this.at + by);
        const time = this.times[this.at];
        if (time < this.from || time > this.to) this.center(time);
    }

    // the selected wave's next run of a line
    next(line) {
        const wave = this.waves[this.selected];
        const size = wave.last - wave.first;
        for (let by = 1; by <= size; by += 1) {
            const index = wave.first + ((this.at - wave.first + by) % size);
            if (this.lineOf[index] === line) {
                this.select(this.selected, index);
                const time = this.times[index];
                if (time < this.from || time > this.to) this.center(time);
                return;
            }
        }
    }

    center(time) {
        const half = (this.to - this.from) / 2;
        this.from = time - half;
        this.to = time + half;
        this.draw();
    }

    // the last instruction of a wave that was issued no later
    indexAt(wave, time) {
        let low = wave.first;
        let high = wave.last;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (this.times[middle] <= time) low = middle + 1;
            else high = middle;
        }
        return Math.max(wave.first, low - 1);
    }

    hit(event) {
        const lane = this.lanes.find(
            (one) => event.offsetY >= one.y && event.offsetY < one.y + ROW,
        );
        if (!lane || event.offsetX < LEFT) return null;
        const width = this.area.clientWidth - LEFT;
        const time = this.from + ((event.offsetX - LEFT) / width) * (this.to - this.from);
        const number = lane.waves.find(
            (one) => this.waves[one].start <= time && time < this.waves[one].end,
        );
        if (number === undefined) return null;
        return { number, index: this.indexAt(this.waves[number], time), time };
    }

    hover(event) {
        const hit = this.hit(event);
        this.tip.hidden = hit === null;
        if (hit === null) return;
        const line = this.lineOf[hit.index];
        replace(
            this.tip,
            h("strong", {}, this.data.lines[line]),
            h("div", {}, `cycle ${count(this.times[hit.index])} · ${this.data.kinds[line]}`),
        );
        const left = Math.min(event.offsetX + 14, this.area.clientWidth - this.tip.offsetWidth - 8);
        this.tip.style.left = `${Math.max(8, left)}px`;
        this.tip.style.top = `${event.offsetY + 16}px`;
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
            if (hit) this.select(hit.number, hit.index);
        });
        this.canvas.addEventListener("pointerleave", () => {
            this.tip.hidden = true;
        });
    }

    key(event) {
        if (!this.lanes) return false;
        const other = (by) =>
            this.select(
                (this.selected + by + this.waves.length) % this.waves.length,
                this.indexAt(
                    this.waves[(this.selected + by + this.waves.length) % this.waves.length],
                    this.times[this.at],
                ),
            );
        const actions = {
            f: () => this.all(),
            "+": () => this.zoom(1.5),
            "=": () => this.zoom(1.5),
            "-": () => this.zoom(1 / 1.5),
            ArrowLeft: () => this.step(-1),
            ArrowRight: () => this.step(1),
            ArrowUp: () => other(-1),
            ArrowDown: () => other(1),
        };
        actions[event.key]?.();
        return actions[event.key] !== undefined;
    }

    // ------------------------------------------------------------ drawing
    all() {
        this.from = -this.length * 0.01;
        this.to = this.length * 1.01;
        this.draw();
    }

    zoom(factor, at = 0.5) {
        const width = Math.min(this.length * 1.05, Math.max(8, (this.to - this.from) / factor));
        const center = this.from + (this.to - this.from) * at;
        this.from = Math.min(this.length, Math.max(-this.length * 0.02, center - width * at));
        this.to = this.from + width;
        this.root.dataset.width = width.toFixed(1);
        this.draw();
    }

    pan(share) {
        const step = (this.to - this.from) * share;
        this.from += step;
        this.to += step;
        this.draw();
    }

    resize() {
        const ratio = window.devicePixelRatio || 1;
        const width = this.area.clientWidth;
        if (!width) return;
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
        this.draw();
    }

    paint() {
        if (this.isGone || !this.lanes || !this.canvas.width) return;
        const { context } = this;
        const colors = theme();
        const ratio = window.devicePixelRatio || 1;
        const width = this.canvas.width / ratio;
        const height = this.canvas.height / ratio;
        context.setTransform(ratio, 0, 0, ratio, 0, 0);
        context.clearRect(0, 0, width, height);
        this.scale = (width - LEFT) / (this.to - this.from);
        this.ruler(colors, width, height);
        context.font = `11px ${colors.sans}`;
        context.textBaseline = "middle";
        for (const lane of this.lanes) {
            context.fillStyle = lane.slot === 0 ? colors.text : colors.faint;
            context.textAlign = "right";
            const name = lane.slot === 0 ? `SIMD ${lane.simd}  0` : String(lane.slot);
            context.fillText(name, LEFT - 10, lane.y + ROW / 2);
        }
        context.save();
        context.beginPath();
        context.rect(LEFT, 0, width - LEFT, height);
        context.clip();
        this.waves.forEach((wave, number) => this.paintWave(wave, number, colors, width));
        if (this.selected >= 0) {
            const x = this.x(this.times[this.at]);
            context.fillStyle = colors.accent;
            context.fillRect(x - 0.5, RULER, 1.5, height);
        }
        context.restore();
    }

    x(time) {
        return LEFT + (time - this.from) * this.scale;
    }

    // at most one bar a pixel: the instruction that is there
    paintWave(wave, number, colors, width) {
        if (wave.end < this.from || wave.start > this.to) return;
        const { context } = this;
        const top = wave.lane.y + 2;
        const tall = ROW - 4;
        context.fillStyle = colors.line;
        const begin = Math.max(LEFT, this.x(wave.start));
        const end = Math.min(width, this.x(wave.end));
        context.fillRect(begin, top, Math.max(1, end - begin), tall);
        let index = this.indexAt(wave, this.from);
        while (index < wave.last && this.times[index] <= this.to) {
            const left = this.x(this.times[index]);
            const right = this.x(this.until(wave, index));
            const line = this.lineOf[index];
            const waits = this.data.kinds[line] === "wait";
            context.globalAlpha = waits ? 0.55 : 1;
            context.fillStyle = colors.series[this.series[line]];
            const wide = Math.max(1, right - left - (right - left > 6 ? 1 : 0));
            context.fillRect(left, top, wide, tall);
            if (line === this.lineNow && wide > 2) {
                context.globalAlpha = 1;
                context.fillStyle = colors.text;
                context.fillRect(left, top + tall - 2, wide, 2);
            }
            if (wide > 60) this.label(this.data.lines[line], left, top + tall / 2, wide, colors);
            index =
                right - left >= 1
                    ? index + 1
                    : Math.max(index + 1, this.indexAt(wave, this.from + (left + 1 - LEFT) / this.scale));
        }
        context.globalAlpha = 1;
        if (number === this.selected) {
            context.strokeStyle = colors.accent;
            context.lineWidth = 1.5;
            context.strokeRect(begin - 1, top - 1.5, Math.max(2, end - begin + 2), tall + 3);
        }
    }

    label(text, left, middle, wide, colors) {
        const { context } = this;
        context.save();
        context.beginPath();
        context.rect(left, middle - ROW / 2, wide - 3, ROW);
        context.clip();
        context.globalAlpha = 1;
        context.fillStyle = colors.onBar;
        context.font = `10px ${colors.mono}`;
        context.textAlign = "left";
        context.fillText(text, Math.max(left, LEFT) + 4, middle + 0.5);
        context.restore();
    }

    ruler(colors, width, height) {
        const { context } = this;
        const rough = (this.to - this.from) / Math.max(2, (width - LEFT) / 110);
        const power = 10 ** Math.floor(Math.log10(rough));
        const step = Math.max(1, [1, 2, 5, 10].find((one) => one * power >= rough) * power);
        context.font = `11px ${colors.sans}`;
        context.textAlign = "left";
        context.textBaseline = "middle";
        for (let time = Math.ceil(Math.max(0, this.from) / step) * step; time <= this.to; time += step) {
            const x = this.x(time);
            if (x < LEFT) continue;
            context.fillStyle = colors.line;
            context.fillRect(x, 0, 1, height);
            context.fillStyle = colors.muted;
            context.fillText(count(time), x + 5, RULER / 2);
        }
        context.fillStyle = colors.muted;
        context.fillText("cycles", 14, RULER / 2);
    }

    dispose() {
        this.isGone = true;
        this.watcher.disconnect();
        this.list?.dispose();
    }
}

function factsOf(row) {
    const { counters } = row;
    const found = [];
    const fact = (name, text) =>
        found.push(h("span", { class: "wave-fact" }, h("b", {}, text), ` ${name}`));
    fact(row.launches === 1 ? "launch" : "launches", count(row.launches));
    for (const [name, value] of Object.entries(counters)) {
        if (name === "by_kind" || name === "launches" || name === "seconds" || !value) continue;
        fact(name.replaceAll("_", " "), name.includes("bytes") ? bytes(value) : count(value));
    }
    const kinds = Object.entries(counters.by_kind ?? {}).sort((a, b) => b[1] - a[1]);
    for (const [kind, value] of kinds) {
        const series = SERIES.get(kind) ?? 6;
        found.push(
            h("span", { class: `wave-fact key series-${series}` }, h("b", {}, count(value)), ` ${kind}`),
        );
    }
    return found;
}
