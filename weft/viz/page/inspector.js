// One node of a graph: its arguments, its line, what it reads and who uses it.

import { h, replace } from "./dom.js";
import { place } from "./format.js";
import { lineText } from "./model.js";

export function showNode(element, model, box, view, expand) {
    element.hidden = box === null;
    if (box === null) return;
    const { graph } = view;
    const { node } = box;
    const text = (column) => (column[node] < 0 ? "" : graph.strings[column[node]]);
    const row = (label, value) =>
        value
            ? h("div", { class: "pair" }, h("dt", {}, label), h("dd", { class: "mono" }, value))
            : null;
    const origin = graph.origin[node] >= 0 ? graph.origins[graph.origin[node]] : null;
    const link = (other) =>
        h(
            "button",
            {
                type: "button",
                class: "link mono",
                on: {
                    click: () => {
                        const target = view.boxOf(other);
                        if (target >= 0) {
                            view.select(target, other);
                            view.center(view.layout.boxes[target], 0.5);
                        }
                    },
                },
            },
            [graph.op, graph.arg]
                .map((column) =>
                    column[other] < 0 ? "" : graph.strings[column[other]].slice(0, 28),
                )
                .join(" "),
        );
    const users = [];
    for (let other = 0; other < graph.op.length && users.length < 12; other += 1)
        if (graph.src[other].includes(node)) users.push(other);
    const list = (label, nodes) =>
        nodes.length
            ? h(
                  "div",
                  { class: "pair" },
                  h("dt", {}, label),
                  h(
                      "dd",
                      {},
                      nodes.slice(0, 12).map(link),
                      nodes.length > 12
                          ? h("span", { class: "muted" }, ` +${nodes.length - 12}`)
                          : null,
                  ),
              )
            : null;
    const isFolded = box.members.length > 1 || box.isExpanded;
    replace(
        element,
        h(
            "div",
            { class: "inspector-head" },
            h("strong", { class: "mono" }, text(graph.op)),
            h(
                "button",
                {
                    type: "button",
                    class: "icon",
                    title: "Close (Esc)",
                    "aria-label": "Close",
                    on: { click: () => view.select(-1) },
                },
                "×",
            ),
        ),
        h(
            "dl",
            {},
            row("dtype", text(graph.dtype)),
            row("arg", text(graph.arg)),
            row("shape", text(graph.shape)),
            row("tag", text(graph.tag)),
            origin ? row("line", place(origin)) : null,
            origin && lineText(model, origin) ? row("", lineText(model, origin)) : null,
            list("sources", graph.src[node]),
            list("used by", users),
        ),
        isFolded
            ? h(
                  "button",
                  {
                      type: "button",
                      class: "wide",
                      id: "expand",
                      on: { click: () => expand() },
                  },
                  box.isExpanded
                      ? "Fold again"
                      : box.chain
                        ? `Show the ${box.members.length} views`
                        : box.isLine
                          ? `Show the ${box.members.length} nodes of this line`
                          : `Show all ${box.members.length} alike`,
              )
            : null,
    );
}
