// The left side: schedules and their kernels, with time and share.

import { h, replace, segmented } from "./dom.js";
import { count, percent, place, time } from "./format.js";
import { VirtualList } from "./virtual.js";

const ROW = 46;

export class Sidebar {
    constructor(host, model, open) {
        this.model = model;
        this.open = open;
        this.order = "run";
        this.closed = new Set();
        this.selected = "";
        this.filter = h("input", {
            type: "search",
            id: "filter",
            placeholder: "Filter kernels, files, lines",
            "aria-label": "Filter kernels",
            spellcheck: "false",
            autocomplete: "off",
            on: { input: () => this.update() },
        });
        this.sorter = h("div", {});
        this.head = h("div", { class: "sidebar-head" }, this.filter, this.sorter);
        this.foot = h("div", { class: "sidebar-foot", "aria-live": "polite" });
        replace(host, this.head);
        this.list = new VirtualList(host, ROW, (index) => this.row(this.rows[index]), {
            role: "listbox",
            "aria-label": "Schedules and kernels",
            id: "kernels",
        });
        host.append(this.foot);
        this.drawOrder();
        this.update();
    }

    drawOrder() {
        const choose = (order) => {
            this.order = order;
            this.drawOrder();
            this.update();
            this.list.element.scrollTop = 0;
        };
        replace(
            this.sorter,
            segmented(
                "Order",
                [
                    ["run", "In order", "As the program ran"],
                    ["time", "By time", "Slowest first"],
                ],
                this.order,
                choose,
            ),
        );
    }

    update() {
        const wanted = this.filter.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
        const fits = (item) => {
            const text = [item.name, item.device, item.origin?.join(":")].join(" ").toLowerCase();
            return wanted.every((word) => text.includes(word));
        };
        this.rows = [];
        let shown = [];
        if (this.order === "time") {
            shown = this.model.items
                .filter(fits)
                .sort((left, right) => right.seconds - left.seconds);
            this.rows = shown.map((item) => ({ item }));
        } else {
            for (const schedule of this.model.schedules) {
                const own = wanted.length ? schedule.items.filter(fits) : schedule.items;
                if (!own.length && wanted.length) continue;
                this.rows.push({ schedule });
                shown.push(...own);
                if (!this.closed.has(schedule.number))
                    this.rows.push(...own.map((item) => ({ item, nested: true })));
            }
            const loose = this.model.loose.filter(fits);
            this.rows.push(...loose.map((item) => ({ item })));
            shown.push(...loose);
            if (this.model.other && !wanted.length) this.rows.push({ other: this.model.other });
        }
        this.list.setCount(this.rows.length);
        const seconds = shown.reduce((sum, item) => sum + item.seconds, 0);
        this.foot.textContent =
            this.rows.length === 0
                ? this.model.items.length
                    ? "No kernel matches."
                    : "Nothing was computed."
                : `${count(shown.length, "kernel")} · ${time(seconds)}`;
        this.foot.dataset.shown = shown.length;
    }

    row(entry) {
        if (entry.schedule) return this.scheduleRow(entry.schedule);
        if (entry.other) {
            return this.frame(
                "other",
                "#/other",
                { class: "row other" },
                h("div", { class: "line" }, h("span", { class: "name" }, "Outside of kernels")),
                h(
                    "div",
                    { class: "line small" },
                    h(
                        "span",
                        {},
                        `${count(entry.other.steps, "rewrite step")} while the graph was built`,
                    ),
                ),
            );
        }
        const { item } = entry;
        const share = this.model.most > 0 ? item.seconds / this.model.most : 0;
        return this.frame(
            `item/${item.number}`,
            `#/item/${item.number}`,
            { class: `row kernel${entry.nested ? " nested" : ""}`, data: { item: item.number } },
            h("div", { class: "share", style: { "--share": share.toFixed(4) } }),
            h(
                "div",
                { class: "line" },
                h("span", { class: "name mono" }, item.name),
                h("span", { class: "time" }, time(item.seconds)),
            ),
            h(
                "div",
                { class: "line small" },
                h(
                    "span",
                    { class: "where" },
                    place(item.origin) || item.device,
                    item.launches > 1 ? ` · ×${item.launches.toLocaleString("en-US")}` : "",
                ),
                h("span", {}, percent(item.share)),
            ),
        );
    }

    scheduleRow(schedule) {
        const isClosed = this.closed.has(schedule.number);
        const origin = schedule.items.find((item) => item.origin)?.origin;
        const toggle = h("button", {
            type: "button",
            class: "twist",
            "aria-label": isClosed ? "Open" : "Close",
            "aria-expanded": String(!isClosed),
            on: {
                click: (event) => {
                    event.preventDefault();
                    event.stopPropagation();
                    if (isClosed) this.closed.delete(schedule.number);
                    else this.closed.add(schedule.number);
                    this.update();
                },
            },
        });
        return this.frame(
            `schedule/${schedule.number}`,
            `#/schedule/${schedule.number}`,
            { class: "row schedule", data: { schedule: schedule.number } },
            toggle,
            h(
                "div",
                { class: "line" },
                h("span", { class: "name" }, `Schedule ${schedule.number + 1}`),
                h("span", { class: "time" }, time(schedule.seconds)),
            ),
            h(
                "div",
                { class: "line small" },
                h(
                    "span",
                    { class: "where" },
                    `${count(schedule.count, "kernel")}${origin ? ` · ${place(origin)}` : ""}`,
                ),
                h(
                    "span",
                    {},
                    schedule.runs > 1 ? `ran ×${schedule.runs.toLocaleString("en-US")}` : "",
                ),
            ),
        );
    }

    frame(key, href, attributes, ...children) {
        const isSelected = key === this.selected;
        return h(
            "a",
            {
                href,
                role: "option",
                "aria-selected": String(isSelected),
                tabindex: "-1",
                ...attributes,
                class: `${attributes.class}${isSelected ? " selected" : ""}`,
            },
            children,
        );
    }

    keyOf(entry) {
        return entry.schedule
            ? `schedule/${entry.schedule.number}`
            : entry.other
              ? "other"
              : `item/${entry.item.number}`;
    }

    select(key) {
        if (key === this.selected) return;
        this.selected = key;
        const index = this.rows.findIndex((entry) => this.keyOf(entry) === key);
        this.list.refresh();
        this.list.reveal(index);
    }

    move(direction) {
        const index = this.rows.findIndex((entry) => this.keyOf(entry) === this.selected);
        const next = Math.min(this.rows.length - 1, Math.max(0, index + direction));
        if (this.rows[next]) this.open(`#/${this.keyOf(this.rows[next])}`);
    }
}
