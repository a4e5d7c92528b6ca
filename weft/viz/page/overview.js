// The first page: what ran, where the time went, which rules did the work.

import { h, replace } from "./dom.js";
import { bytes, count, fileName, percent, place, time } from "./format.js";
import { lineText } from "./model.js";

export function showOverview(host, model) {
    const { index } = model;
    const launches = model.items.reduce((sum, item) => sum + item.launches, 0);
    const compile = model.units.reduce((sum, unit) => sum + unit.seconds, 0);
    const steps = model.units.reduce((sum, unit) => sum + unit.steps, 0);
    const kernels = model.units.filter((unit) => unit.kind === "kernel").length;
    if (!model.items.length) {
        replace(
            host,
            h(
                "div",
                { class: "empty-state" },
                h("h1", {}, "Nothing was computed"),
                h(
                    "p",
                    {},
                    "The program ended before a value was needed. Tensors are lazy: call ",
                    h("code", {}, ".realize()"),
                    ", ",
                    h("code", {}, ".numpy()"),
                    " or ",
                    h("code", {}, ".item()"),
                    " to compute one.",
                ),
            ),
        );
        return;
    }
    const card = (value, label, title) =>
        h(
            "div",
            { class: "card", title },
            h("div", { class: "value" }, value),
            h("div", { class: "label" }, label),
        );
    replace(
        host,
        h(
            "div",
            { class: "overview" },
            h(
                "h1",
                { class: "mono" },
                index.program.command
                    .map((part) => (part.includes("/") ? fileName(part) : part))
                    .join(" "),
            ),
            h(
                "p",
                { class: "muted" },
                [
                    new Date(index.program.began * 1000).toLocaleString(),
                    `ran ${time(index.program.seconds)}`,
                    `Python ${index.program.python}`,
                    index.program.machine,
                ].join(" · "),
            ),
            h(
                "div",
                { class: "cards" },
                card(time(model.total), "in kernels", "Sum of all launches"),
                card(count(launches), launches === 1 ? "launch" : "launches"),
                card(count(kernels), "distinct programs", "Kernels that were lowered and compiled"),
                card(time(compile), "compiling", "Scheduling and lowering, with the recording"),
                card(count(steps), "rewrite steps"),
                card(
                    bytes(
                        model.items.reduce(
                            (sum, item) => sum + (item.unit?.mem ?? item.bytes) * item.launches,
                            0,
                        ),
                    ),
                    "touched",
                    "By the compiler's estimate",
                ),
            ),
            h(
                "div",
                { class: "columns" },
                h("section", {}, h("h2", {}, "Slowest kernels"), slowest(model)),
                h("section", {}, h("h2", {}, "Lines that took the time"), hotLines(model)),
                h("section", {}, h("h2", {}, "Longest to compile"), slowestToCompile(model)),
            ),
        ),
    );
}

function bars(rows) {
    const most = rows.reduce((largest, row) => Math.max(largest, row.value), 0) || 1;
    return h(
        "ol",
        { class: "bars" },
        rows.map((row) =>
            h(
                "li",
                {},
                h(
                    row.href ? "a" : "div",
                    { href: row.href, class: "bar" },
                    h("span", {
                        class: "fill",
                        style: { "--share": (row.value / most).toFixed(4) },
                    }),
                    h(
                        "span",
                        { class: "what" },
                        h("span", { class: "mono" }, row.name),
                        row.detail ? h("span", { class: "muted" }, row.detail) : null,
                    ),
                    h("span", { class: "time" }, row.text),
                ),
            ),
        ),
    );
}

function slowest(model) {
    const rows = [...model.items].sort((left, right) => right.seconds - left.seconds).slice(0, 12);
    return bars(
        rows.map((item) => ({
            name: item.name,
            detail: place(item.origin),
            value: item.seconds,
            text: `${time(item.seconds)}  ${percent(item.share)}`,
            href: `#/item/${item.number}`,
        })),
    );
}

function hotLines(model) {
    const lines = new Map();
    for (const item of model.items) {
        if (!item.origin) continue;
        const key = item.origin.join(":");
        const line = lines.get(key) ?? {
            origin: item.origin,
            value: 0,
            item: item.number,
            most: -1,
        };
        line.value += item.seconds;
        if (item.seconds > line.most) {
            line.most = item.seconds;
            line.item = item.number;
        }
        lines.set(key, line);
    }
    const rows = [...lines.values()].sort((left, right) => right.value - left.value).slice(0, 12);
    return bars(
        rows.map((line) => ({
            name: lineText(model, line.origin) || place(line.origin),
            detail: place(line.origin),
            value: line.value,
            text: `${time(line.value)}  ${percent(model.total ? line.value / model.total : 0)}`,
            href: `#/item/${line.item}`,
        })),
    );
}

function slowestToCompile(model) {
    const firstItem = new Map();
    for (const item of model.items)
        if (item.unit && !firstItem.has(item.unit.number))
            firstItem.set(item.unit.number, `#/item/${item.number}`);
    for (const schedule of model.schedules)
        if (schedule.unit) firstItem.set(schedule.unit.number, `#/schedule/${schedule.number}`);
    const rows = [...model.units]
        .filter((unit) => firstItem.has(unit.number))
        .sort((left, right) => right.seconds - left.seconds)
        .slice(0, 12);
    return bars(
        rows.map((unit) => ({
            name: unit.kind === "schedule" ? "schedule" : unit.name,
            detail: `${count(unit.nodes)} nodes · ${count(unit.steps)} steps`,
            value: unit.seconds,
            text: time(unit.seconds),
            href: firstItem.get(unit.number),
        })),
    );
}
