// A graph on a canvas: drawn as far as one can see it, so that its size does not matter.

import { h } from "./dom.js";
import { family, theme } from "./palette.js";

const LEAST_SCALE = 0.02;
const MOST_SCALE = 3;
// below this size letters are no letters any more
const TEXT_SCALE = 0.32;
const READABLE = 0.6;

let worker = null;
let nextQuestion = 0;
const waiting = new Map();

function layOut(graph, options) {
    if (worker === null) {
        worker = new Worker("layout.worker.js");
        worker.onmessage = (event) => {
            const done = waiting.get(event.data.id);
            waiting.delete(event.data.id);
            done?.(event.data);
        };
    }
    const id = nextQuestion;
    nextQuestion += 1;
    return new Promise((resolve) => {
        waiting.set(id, resolve);
        worker.postMessage({ id, graph, options });
    });
}

export class GraphView {
    constructor(label, onSelect) {
        this.canvas = h("canvas", { role: "img", tabindex: "0" });
        this.caption = h("div", { class: "graph-caption" }, label);
        this.map = h("canvas", { class: "map", hidden: true, "aria-hidden": "true" });
        this.note = h("div", { class: "graph-note", "aria-live": "polite" });
        this.element = h(
            "div",
            { class: "graph", data: { side: label.toLowerCase() } },
            this.canvas,
            this.caption,
            this.note,
            this.map,
        );
        this.context = this.canvas.getContext("2d");
        this.onSelect = onSelect;
        this.layout = null;
        this.graph = null;
        this.view = { scale: 1, x: 0, y: 0 };
        this.selected = -1;
        this.matches = [];
        this.current = -1;
        this.side = label.toLowerCase();
        this.partner = null;
        this.request = 0;
        this.watcher = new ResizeObserver(() => this.resize());
        this.watcher.observe(this.element);
        this.listen();
    }

    async show(graph, options, keepView) {
        const request = ++this.request;
        this.graph = graph;
        const slow = setTimeout(() => {
            this.element.classList.add("busy");
        }, 120);
        const layout = await layOut(graph, options);
        clearTimeout(slow);
        if (request !== this.request) return;
        this.element.classList.remove("busy");
        if (layout.error) {
            this.note.textContent = layout.error;
            return;
        }
        const before = this.layout;
        this.layout = layout;
        this.selected = -1;
        this.matches = [];
        this.current = -1;
        this.sortBoxes();
        this.placeMap();
        const changed = layout.boxes.filter(isChanged).length;
        const folded =
            graph.op.length - layout.boxes.reduce((sum, box) => sum + box.members.length, 0);
        const merged = layout.boxes.reduce((sum, box) => sum + box.members.length - 1, 0);
        this.element.dataset.nodes = graph.op.length;
        this.element.dataset.boxes = layout.boxes.length;
        this.element.dataset.changed = changed;
        this.element.dataset.engine = layout.engine;
        const parts = [`${graph.op.length.toLocaleString("en-US")} nodes`];
        if (layout.boxes.length !== graph.op.length)
            parts.push(`${layout.boxes.length.toLocaleString("en-US")} boxes`);
        if (changed)
            parts.push(
                `${changed.toLocaleString("en-US")} ${this.side === "before" ? "replaced" : "new"}`,
            );
        this.note.textContent = parts.join(" · ");
        this.canvas.setAttribute(
            "aria-label",
            `Graph ${this.side}: ${parts.join(", ")}; ${folded} leaves inside boxes, ${merged} repeated`,
        );
        if (!keepView || before === null) this.home();
        else if (changed) this.revealChange();
        this.draw();
    }

    sortBoxes() {
        this.ordered = this.layout.boxes
            .map((box, number) => number)
            .sort((left, right) => this.layout.boxes[left].y - this.layout.boxes[right].y);
        this.tallest = this.layout.boxes.reduce((most, box) => Math.max(most, box.height), 0);
    }

    clear(text) {
        this.request += 1;
        this.layout = null;
        this.note.textContent = text || "";
        this.draw();
    }

    // ------------------------------------------------------------ where one looks
    home() {
        this.fit();
        if (this.view.scale >= READABLE) return;
        // too much to read at once: what changed, else the result
        const boxes = this.layout.boxes;
        const target = boxes.find(isChanged) ?? boxes[boxes.length - 1];
        if (target) {
            this.center(target, 0.8);
            this.clamp();
        }
    }

    // no more empty room at an edge than the graph leaves anyway
    clamp() {
        const { clientWidth: width, clientHeight: height } = this.element;
        const room = (size, total, position, before, after) =>
            size <= total - before - after
                ? before + (total - before - after - size) / 2
                : Math.min(before, Math.max(total - after - size, position));
        // nothing ends under the map, which there is where not all is seen
        const map = this.map.width / (window.devicePixelRatio || 1) + 24;
        this.view.x = room(this.layout.width * this.view.scale, width, this.view.x, 12, map);
        this.view.y = room(this.layout.height * this.view.scale, height, this.view.y, 40, 40);
    }

    fit() {
        if (!this.layout || !this.layout.boxes.length) return;
        const { clientWidth: width, clientHeight: height } = this.element;
        const scale = Math.min(
            1.15,
            Math.min(width / (this.layout.width + 48), (height - 84) / this.layout.height),
        );
        this.view.scale = Math.max(LEAST_SCALE, scale);
        this.view.x = (width - this.layout.width * this.view.scale) / 2;
        this.view.y = 40 + Math.max(0, (height - 80 - this.layout.height * this.view.scale) / 2);
        this.draw();
    }

    center(box, scale) {
        if (scale) this.view.scale = Math.max(this.view.scale, scale);
        this.view.x = this.element.clientWidth / 2 - box.x * this.view.scale;
        this.view.y = this.element.clientHeight / 2 - box.y * this.view.scale;
        this.draw();
    }

    revealChange() {
        const changed = this.layout.boxes.filter(isChanged);
        if (!changed.length || changed.some((box) => this.isVisible(box))) return;
        this.center(changed[0]);
    }

    isVisible(box) {
        const x = box.x * this.view.scale + this.view.x;
        const y = box.y * this.view.scale + this.view.y;
        return x > 0 && y > 40 && x < this.element.clientWidth && y < this.element.clientHeight;
    }

    zoom(factor, x = this.element.clientWidth / 2, y = this.element.clientHeight / 2) {
        const scale = Math.min(MOST_SCALE, Math.max(LEAST_SCALE, this.view.scale * factor));
        this.view.x = x - (x - this.view.x) * (scale / this.view.scale);
        this.view.y = y - (y - this.view.y) * (scale / this.view.scale);
        this.view.scale = scale;
        this.element.dataset.scale = scale.toFixed(3);
        this.draw();
    }

    // ------------------------------------------------------------ searching
    search(text) {
        this.matches = [];
        this.current = -1;
        const wanted = text.trim().toLowerCase();
        if (wanted && this.layout) {
            const { graph } = this;
            const read = (index) => (index < 0 ? "" : graph.strings[index].toLowerCase());
            const matching = (node) =>
                [graph.op, graph.arg, graph.dtype, graph.shape].some((column) =>
                    read(column[node]).includes(wanted),
                ) ||
                (graph.origin[node] >= 0 &&
                    graph.origins[graph.origin[node]].join(":").toLowerCase().includes(wanted));
            this.layout.boxes.forEach((box, number) => {
                if (
                    box.members.some(matching) ||
                    box.chips.some((chip) => chip.text.toLowerCase().includes(wanted))
                )
                    this.matches.push(number);
            });
            this.matching = matching;
        }
        this.element.dataset.found = this.matches.length;
        this.draw();
        return this.matches.length;
    }

    next(direction) {
        if (!this.matches.length) return -1;
        this.current = (this.current + direction + this.matches.length) % this.matches.length;
        const number = this.matches[this.current];
        // of a box of many nodes the one that was looked for is shown
        this.select(number, this.layout.boxes[number].members.find(this.matching));
        this.center(this.layout.boxes[number], 0.6);
        return this.current;
    }

    select(number, node) {
        this.selected = number;
        const box = this.layout.boxes[number];
        this.onSelect(number < 0 ? null : { ...box, node: node ?? box.node }, this);
        this.draw();
    }

    boxOf(node) {
        return this.layout.boxes.findIndex((box) => box.members.includes(node));
    }

    // ------------------------------------------------------------ input
    listen() {
        for (const kind of ["pointerdown", "pointermove"])
            this.map.addEventListener(kind, (event) => this.goByMap(event));
        let drag = null;
        this.canvas.addEventListener("pointerdown", (event) => {
            this.canvas.setPointerCapture(event.pointerId);
            drag = { x: event.clientX, y: event.clientY, moved: false };
        });
        this.canvas.addEventListener("pointermove", (event) => {
            if (!drag) {
                this.canvas.style.cursor = this.hit(event) >= 0 ? "pointer" : "grab";
                return;
            }
            const dx = event.clientX - drag.x;
            const dy = event.clientY - drag.y;
            if (!drag.moved && Math.hypot(dx, dy) < 4) return;
            drag = { x: event.clientX, y: event.clientY, moved: true };
            this.canvas.style.cursor = "grabbing";
            this.view.x += dx;
            this.view.y += dy;
            this.draw();
        });
        this.canvas.addEventListener("pointerup", (event) => {
            if (drag && !drag.moved) this.select(this.hit(event));
            drag = null;
        });
        this.canvas.addEventListener(
            "wheel",
            (event) => {
                event.preventDefault();
                const unit = event.deltaMode === 1 ? 16 : 1;
                if (event.shiftKey) {
                    this.view.x -= (event.deltaX || event.deltaY) * unit;
                    this.draw();
                    return;
                }
                this.zoom(
                    Math.exp(-event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0016)),
                    event.offsetX,
                    event.offsetY,
                );
            },
            { passive: false },
        );
    }

    goByMap(event) {
        if (event.buttons !== 1 && event.type !== "pointerdown") return;
        this.view.x =
            this.element.clientWidth / 2 - (event.offsetX / this.mapScale) * this.view.scale;
        this.view.y =
            this.element.clientHeight / 2 - (event.offsetY / this.mapScale) * this.view.scale;
        this.draw();
    }

    hit(event) {
        if (!this.layout) return -1;
        const x = (event.offsetX - this.view.x) / this.view.scale;
        const y = (event.offsetY - this.view.y) / this.view.scale;
        return this.layout.boxes.findIndex(
            (box) => Math.abs(box.x - x) <= box.width / 2 && Math.abs(box.y - y) <= box.height / 2,
        );
    }

    resize() {
        const ratio = window.devicePixelRatio || 1;
        const { clientWidth: width, clientHeight: height } = this.element;
        if (!width || !height) return;
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(height * ratio);
        this.paint();
    }

    // ------------------------------------------------------------ drawing
    draw() {
        if (this.pending) return;
        this.pending = requestAnimationFrame(() => {
            this.pending = 0;
            this.paint();
        });
    }

    paint() {
        const colors = theme();
        const context = this.context;
        const ratio = window.devicePixelRatio || 1;
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.fillStyle = colors.background;
        context.fillRect(0, 0, this.canvas.width, this.canvas.height);
        if (!this.layout) {
            this.map.hidden = true;
            return;
        }
        const { scale, x, y } = this.view;
        context.setTransform(ratio * scale, 0, 0, ratio * scale, ratio * x, ratio * y);
        const area = {
            left: -x / scale,
            top: -y / scale,
            right: (this.element.clientWidth - x) / scale,
            bottom: (this.element.clientHeight - y) / scale,
        };
        this.paintEdges(context, colors, area, scale);
        this.paintBoxes(context, colors, area, scale);
        this.paintMap(colors, area);
    }

    // ------------------------------------------------------------ the small map
    placeMap() {
        const { width, height } = this.layout;
        const scale = Math.min(132 / width, 150 / height);
        const ratio = window.devicePixelRatio || 1;
        this.map.width = Math.ceil(Math.max(10, width * scale) * ratio);
        this.map.height = Math.ceil(Math.max(10, height * scale) * ratio);
        this.map.style.width = `${this.map.width / ratio}px`;
        this.map.style.height = `${this.map.height / ratio}px`;
        this.mapScale = scale;
        this.mapped = null;
    }

    // boxes are drawn once per layout and theme; after that only the frame moves
    paintMap(colors, area) {
        const { width, height } = this.layout;
        const isWhole =
            area.left <= 0 && area.top <= 0 && area.right >= width && area.bottom >= height;
        this.map.hidden = isWhole || this.layout.boxes.length < 12;
        if (this.map.hidden) return;
        const ratio = window.devicePixelRatio || 1;
        const scale = this.mapScale * ratio;
        if (this.mapped?.colors !== colors.box) {
            const picture = document.createElement("canvas");
            picture.width = this.map.width;
            picture.height = this.map.height;
            const pen = picture.getContext("2d");
            for (const box of this.layout.boxes) {
                pen.fillStyle =
                    box.mark === 2
                        ? this.side === "before"
                            ? colors.removed
                            : colors.added
                        : colors.edge;
                pen.fillRect(
                    (box.x - box.width / 2) * scale,
                    (box.y - box.height / 2) * scale,
                    Math.max(1, box.width * scale),
                    Math.max(1, box.height * scale),
                );
            }
            this.mapped = { picture, colors: colors.box };
        }
        const pen = this.map.getContext("2d");
        pen.clearRect(0, 0, this.map.width, this.map.height);
        pen.drawImage(this.mapped.picture, 0, 0);
        pen.strokeStyle = colors.accent;
        pen.lineWidth = 1.5 * ratio;
        pen.strokeRect(
            area.left * scale,
            area.top * scale,
            (area.right - area.left) * scale,
            (area.bottom - area.top) * scale,
        );
    }

    paintEdges(context, colors, area, scale) {
        const { boxes, edges } = this.layout;
        const near = this.selected;
        context.lineWidth = Math.max(1.1, 0.6 / scale);
        context.strokeStyle = colors.edge;
        context.beginPath();
        const marked = [];
        for (const edge of edges) {
            const from = boxes[edge.from];
            const to = boxes[edge.to];
            if (Math.max(from.y, to.y) < area.top - 80 || Math.min(from.y, to.y) > area.bottom + 80)
                continue;
            if (
                Math.max(from.x, to.x) < area.left - 400 ||
                Math.min(from.x, to.x) > area.right + 400
            )
                continue;
            if (edge.from === near || edge.to === near) {
                marked.push(edge);
                continue;
            }
            this.trace(context, edge, from, to);
        }
        context.stroke();
        if (!marked.length) return;
        context.strokeStyle = colors.accent;
        context.lineWidth = Math.max(1.8, 1 / scale);
        context.beginPath();
        for (const edge of marked) this.trace(context, edge, boxes[edge.from], boxes[edge.to]);
        context.stroke();
    }

    trace(context, edge, from, to) {
        if (edge.points && edge.points.length > 2) {
            const points = edge.points;
            context.moveTo(points[0][0], points[0][1]);
            for (let index = 1; index < points.length - 1; index += 1) {
                const [x, y] = points[index];
                const [nextX, nextY] = points[index + 1];
                const last = index === points.length - 2;
                context.quadraticCurveTo(
                    x,
                    y,
                    last ? nextX : (x + nextX) / 2,
                    last ? nextY : (y + nextY) / 2,
                );
            }
            return;
        }
        const top = from.y + from.height / 2;
        const bottom = to.y - to.height / 2;
        const bend = Math.min(60, Math.max(12, Math.abs(bottom - top) / 2));
        context.moveTo(from.x, top);
        context.bezierCurveTo(from.x, top + bend, to.x, bottom - bend, to.x, bottom);
    }

    paintBoxes(context, colors, area, scale) {
        const { boxes } = this.layout;
        const found = new Set(this.matches);
        const hasText = scale >= TEXT_SCALE;
        // boxes are sorted by height on the page: only those between top and bottom are looked at
        let low = 0;
        let high = this.ordered.length;
        while (low < high) {
            const middle = (low + high) >> 1;
            if (boxes[this.ordered[middle]].y + this.tallest < area.top) low = middle + 1;
            else high = middle;
        }
        for (let index = low; index < this.ordered.length; index += 1) {
            const number = this.ordered[index];
            const box = boxes[number];
            if (box.y - box.height / 2 > area.bottom + this.tallest) break;
            if (box.x + box.width / 2 < area.left || box.x - box.width / 2 > area.right) continue;
            this.paintBox(
                context,
                colors,
                box,
                scale,
                hasText,
                found.size ? found.has(number) : null,
                number === this.selected,
            );
        }
    }

    paintBox(context, colors, box, scale, hasText, isFound, isSelected) {
        const left = box.x - box.width / 2;
        const top = box.y - box.height / 2;
        const color =
            box.kind && colors[box.kind] ? colors[box.kind] : colors[family(box.op)] || colors.math;
        const changed = box.mark === 2;
        const change = this.side === "before" ? colors.removed : colors.added;
        context.globalAlpha = isFound === false ? 0.28 : 1;
        if (box.members.length > 1 && !box.chain && !box.isLine && hasText) {
            context.fillStyle = colors.box;
            context.strokeStyle = colors.line;
            context.lineWidth = 1;
            rounded(context, left + 4, top + 4, box.width, box.height, 6);
            context.fill();
            context.stroke();
        }
        rounded(context, left, top, box.width, box.height, 6);
        context.fillStyle = changed
            ? this.side === "before"
                ? colors.removedSoft
                : colors.addedSoft
            : hasText
              ? colors.box
              : color;
        context.fill();
        context.lineWidth = isSelected ? 2.4 : changed || isFound ? 2 : 1;
        context.strokeStyle = isSelected
            ? colors.accent
            : isFound
              ? colors.found
              : changed
                ? change
                : hasText
                  ? colors.line
                  : color;
        context.stroke();
        if (hasText) this.paintText(context, colors, box, left, top, color);
        context.globalAlpha = 1;
    }

    paintText(context, colors, box, left, top, color) {
        context.fillStyle = color;
        rounded(context, left, top, 4, box.height, [6, 0, 0, 6]);
        context.fill();
        context.textBaseline = "middle";
        context.font = `600 11.5px ${colors.mono}`;
        context.fillStyle = color;
        context.fillText(box.title, left + 13, top + 15);
        context.font = `11px ${colors.mono}`;
        context.fillStyle = colors.muted;
        box.lines.forEach((line, index) =>
            context.fillText(line, left + 13, top + 30 + index * 15),
        );
        let x = left + 12;
        const y = top + box.height - 20;
        for (const chip of box.chips) {
            const width = chip.text.length * 6.75 + 10;
            const chipColor = chip.kind ? colors[chip.kind] || colors.control : colors.constant;
            rounded(context, x, y, width, 15, 4);
            context.strokeStyle =
                chip.mark === 2
                    ? this.side === "before"
                        ? colors.removed
                        : colors.added
                    : chipColor;
            context.lineWidth = chip.mark === 2 ? 2 : 0.8;
            context.stroke();
            context.fillStyle = chipColor;
            context.fillText(chip.text, x + 5, y + 8);
            x += width + 4;
        }
    }

    dispose() {
        this.watcher.disconnect();
        cancelAnimationFrame(this.pending);
    }
}

function isChanged(box) {
    return box.mark === 2 || box.chips.some((chip) => chip.mark === 2);
}

function rounded(context, x, y, width, height, radius) {
    context.beginPath();
    context.roundRect(x, y, width, height, radius);
}
