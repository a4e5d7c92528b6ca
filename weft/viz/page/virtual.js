// A list that only has the rows one can see, so that its length does not matter.

import { h } from "./dom.js";

export class VirtualList {
    constructor(host, rowHeight, render, attributes = {}) {
        this.rowHeight = rowHeight;
        this.render = render;
        this.count = 0;
        this.rows = new Map();
        this.filler = h("div", { class: "filler" });
        this.element = h("div", { class: "virtual", tabindex: "-1", ...attributes }, this.filler);
        this.element.addEventListener("scroll", () => this.paint(), { passive: true });
        host.append(this.element);
        this.watcher = new ResizeObserver(() => this.paint());
        this.watcher.observe(this.element);
    }

    setCount(count) {
        this.count = count;
        this.filler.style.height = `${count * this.rowHeight}px`;
        this.refresh();
    }

    refresh() {
        for (const row of this.rows.values()) row.remove();
        this.rows.clear();
        this.paint();
    }

    paint() {
        const top = this.element.scrollTop;
        const first = Math.max(0, Math.floor(top / this.rowHeight) - 6);
        const last = Math.min(
            this.count,
            Math.ceil((top + this.element.clientHeight) / this.rowHeight) + 6,
        );
        for (const [index, row] of this.rows) {
            if (index < first || index >= last) {
                row.remove();
                this.rows.delete(index);
            }
        }
        for (let index = first; index < last; index += 1) {
            if (this.rows.has(index)) continue;
            const row = this.render(index);
            row.style.top = `${index * this.rowHeight}px`;
            row.style.height = `${this.rowHeight}px`;
            this.rows.set(index, row);
            this.filler.append(row);
        }
    }

    reveal(index, where = "nearest") {
        if (index < 0 || index >= this.count) return;
        const top = index * this.rowHeight;
        const bottom = top + this.rowHeight;
        const view = this.element;
        if (where === "center") view.scrollTop = top - view.clientHeight / 2;
        else if (top < view.scrollTop) view.scrollTop = top - this.rowHeight;
        else if (bottom > view.scrollTop + view.clientHeight)
            view.scrollTop = bottom - view.clientHeight + this.rowHeight;
    }

    dispose() {
        this.watcher.disconnect();
    }
}
