// The head of a kernel or schedule: what it took, which line made it, how it was optimised.

import { h, replace } from "./dom.js";
import { bytes, count, percent, place, time } from "./format.js";
import { linesAround, lineText, rates } from "./model.js";

export function drawHead(element, model, target, tab) {
    const { item, schedule, unit, base } = target;
    const facts = [];
    const fact = (text, title) => text && facts.push(h("span", { class: "fact", title }, text));
    let title = "Outside of kernels";
    if (item) {
        title = item.name;
        fact(`${time(item.seconds)}`, "Time in this kernel");
        fact(percent(item.share), "Share of the time in all kernels");
        if (item.launches > 1)
            fact(`${count(item.launches, "launch", "launches")}, best ${time(item.best)}`);
        for (const [text, why] of rates(item)) fact(text, why);
        fact(item.device);
        fact(count(item.buffers, "buffer"));
        if (unit?.threads > 1)
            fact(`${unit.threads} parallel parts`, "Size of the axis that threads share");
        if (unit) fact(`compiled in ${time(unit.seconds)}`, "Lowering, with the recording of it");
    } else if (schedule) {
        title = `Schedule ${schedule.number + 1}`;
        fact(count(schedule.count, "kernel"));
        fact(time(schedule.seconds), "Time in its kernels");
        if (schedule.runs > 1) fact(`ran ${count(schedule.runs, "time")}`);
        if (unit) fact(`made in ${time(unit.seconds)}`, "With the recording of it");
        fact(
            bytes(schedule.items.reduce((sum, one) => sum + one.bytes, 0)),
            "Sum of the buffers of all kernels",
        );
    }
    const tabs = unit
        ? h(
              "nav",
              { class: "tabs", "aria-label": "Parts" },
              h(
                  "a",
                  {
                      href: `#/${base}/graph`,
                      "aria-current": tab === "graph" ? "page" : null,
                      id: "tab-graph",
                  },
                  "Rewrites",
              ),
              unit.code
                  ? h(
                        "a",
                        {
                            href: `#/${base}/code`,
                            "aria-current": tab === "code" ? "page" : null,
                            id: "tab-code",
                        },
                        "Code",
                    )
                  : null,
          )
        : null;
    replace(
        element,
        h(
            "div",
            { class: "title-line" },
            h("h1", { class: "mono" }, title),
            h("div", { class: "facts" }, facts),
            tabs,
        ),
        sourceLine(model, item, unit),
        unit?.applied?.length
            ? h(
                  "div",
                  { class: "applied", title: "Optimisations that were applied, in order" },
                  unit.applied.map((text) => h("span", { class: "opt mono" }, optText(text))),
              )
            : null,
    );
}

function sourceLine(model, item, unit) {
    if (!item?.origin) return null;
    const others = (unit?.lines ?? []).filter(
        (origin) => origin.join(":") !== item.origin.join(":"),
    );
    const summary = h(
        "summary",
        {},
        h("span", { class: "place" }, place(item.origin)),
        h("code", {}, lineText(model, item.origin)),
        others.length
            ? h("span", { class: "muted" }, `+ ${count(others.length, "line")} fused`)
            : null,
    );
    const around = h(
        "pre",
        { class: "around" },
        linesAround(model, item.origin).map(([number, text]) =>
            h(
                "div",
                { class: number === item.origin[1] ? "this" : null },
                h("span", { class: "number" }, String(number)),
                text || " ",
            ),
        ),
    );
    const fused = others.length
        ? h(
              "pre",
              { class: "around fused" },
              others
                  .slice(0, 30)
                  .map((origin) =>
                      h(
                          "div",
                          {},
                          h("span", { class: "number" }, place(origin)),
                          lineText(model, origin) || " ",
                      ),
                  ),
          )
        : null;
    return h(
        "details",
        { class: "source-line", id: "source-line" },
        summary,
        h(
            "div",
            { class: "popover" },
            h("div", { class: "file muted" }, item.origin[0]),
            around,
            fused,
        ),
    );
}

// Opt(op=OptOps.UPCAST, axis=(1,), arg=64) is what Python prints; the names alone are enough here
function optText(text) {
    const found = /op=OptOps\.(\w+), axis=\(([^)]*)\), arg=(.*)\)$/.exec(text);
    if (!found) return text;
    const axis = found[2].replace(/,\s*$/, "").replace(/,\s*/g, ".");
    const amount = found[3] === "None" ? "" : found[3].replace(/^\((.*?),?\)$/, "$1");
    return [found[1], axis && `r${axis}`, amount].filter(Boolean).join(" ");
}
