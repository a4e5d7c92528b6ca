// The page: which view is open (its address is in the URL's hash), keys, theme.

import { ask } from "./api.js";
import { h, replace } from "./dom.js";
import { fileName } from "./format.js";
import { modelOf } from "./model.js";
import { showOverview } from "./overview.js";
import { readTheme } from "./palette.js";
import { Sidebar } from "./sidebar.js";
import { Timeline } from "./timeline.js";
import { UnitView } from "./unit.js";
import { Waves } from "./waves.js";

const KEYS = [
    ["← →", "one rewrite step back or on"],
    ["⇧← ⇧→", "one pass back or on"],
    ["↑ ↓ or k j", "the kernel above or below"],
    ["/", "search in the graph"],
    ["n N", "next or previous match"],
    [".", "filter the kernels"],
    ["b", "before or after"],
    ["s", "both side by side"],
    ["c", "fold repeated subgraphs"],
    ["g", "fold what one line made"],
    ["l", "leaves as boxes"],
    ["+ − f", "zoom in, out, show all"],
    ["1 2 3", "overview, rewrites, code"],
    ["4", "timeline"],
    ["5", "waves over time, ← → one instruction"],
    ["t", "theme"],
    ["Esc", "leave a search or a node"],
    ["?", "this list"],
];
const page = { model: null, sidebar: null, view: null, kind: "", turn: 0 };
const main = document.getElementById("main");

function go(hash) {
    if (location.hash === hash) route();
    else location.hash = hash;
}

async function start() {
    setTheme(localStorage.getItem("weft-theme") ?? "auto");
    drawHelp();
    try {
        page.model = modelOf(await ask("index"));
    } catch (error) {
        replace(
            main,
            h(
                "div",
                { class: "empty-state" },
                h("h1", {}, "The trace does not open"),
                h("p", {}, error.message),
            ),
        );
        return;
    }
    const { command } = page.model.index.program;
    const name = command.map((part) => (part.includes("/") ? fileName(part) : part)).join(" ");
    document.getElementById("program").textContent = name;
    document.title = `${name} · weft viz`;
    page.sidebar = new Sidebar(document.getElementById("sidebar"), page.model, go);
    addEventListener("hashchange", route);
    addEventListener("keydown", onKey);
    document.getElementById("theme").addEventListener("click", nextTheme);
    document
        .getElementById("help-button")
        .addEventListener("click", () => document.getElementById("help").showModal());
    await route();
    document.documentElement.dataset.ready = "yes";
}

// ---------------------------------------------------------------- views

function targetOf([kind, text]) {
    const { model } = page;
    const number = Number(text);
    if (kind === "item" && model.items[number]) {
        const item = model.items[number];
        return { item, unit: item.unit, base: `item/${number}` };
    }
    if (kind === "schedule" && model.schedules[number]) {
        const schedule = model.schedules[number];
        return { schedule, unit: schedule.unit, base: `schedule/${number}` };
    }
    if (kind === "other" && model.other) return { unit: model.other, base: "other" };
    return null;
}

async function route() {
    const turn = ++page.turn;
    const parts = location.hash.replace(/^#\/?/, "").split("/");
    const kind = parts[0] || "overview";
    drawNav(kind, parts);
    try {
        if (kind === "overview" || kind === "timeline") {
            if (page.kind !== kind) {
                page.view?.dispose();
                page.view = null;
                page.kind = kind;
                page.sidebar.select("");
                if (kind === "overview") showOverview(main, page.model);
                else {
                    page.view = new Timeline(main, page.model, go);
                    await page.view.open();
                }
            }
            return;
        }
        if (kind === "waves" && page.model.index.threads?.length) {
            page.view?.dispose();
            page.kind = kind;
            page.sidebar.select("");
            page.view = new Waves(main, page.model, go);
            await page.view.open(Number(parts[1] ?? 0));
            return;
        }
        await openUnit(parts);
    } catch (error) {
        // the reader has gone on to another view, which is there
        if (turn !== page.turn) return;
        page.kind = "";
        replace(
            main,
            h(
                "div",
                { class: "empty-state" },
                h("h1", {}, "This does not open"),
                h("p", {}, error.message),
            ),
        );
    }
}

async function openUnit(parts) {
    const target = targetOf(parts);
    if (!target) {
        location.replace("#/overview");
        return;
    }
    const rest = parts.slice(target.base.split("/").length);
    const tab = rest[0] === "code" && target.unit?.code ? "code" : "graph";
    const numbers = rest.slice(1).map(Number);
    const place = {
        pass: rest.length > 1 ? numbers[0] || 0 : null,
        rewrite: rest.length > 2 ? numbers[1] || 0 : -1,
        step: numbers[2] || 0,
    };
    page.sidebar.select(target.base);
    if (page.kind === target.base && page.view && target.unit) {
        await page.view.show(tab, place);
        return;
    }
    page.view?.dispose();
    page.kind = target.base;
    page.view = new UnitView(main, page.model, target, go);
    await page.view.open(tab, place);
}

function drawNav(kind) {
    const base =
        kind === "item" || kind === "schedule" || kind === "other" ? location.hash : firstKernel();
    const link = (id, text, href, current) =>
        h("a", { id, href, "aria-current": current ? "page" : null }, text);
    replace(
        document.getElementById("views"),
        link("nav-overview", "Overview", "#/overview", kind === "overview"),
        link(
            "nav-kernels",
            "Kernels",
            base,
            kind !== "overview" && kind !== "timeline" && kind !== "waves",
        ),
        link("nav-timeline", "Timeline", "#/timeline", kind === "timeline"),
        page.model.index.threads?.length
            ? link("nav-waves", "Waves", "#/waves/0", kind === "waves")
            : null,
    );
}

function firstKernel() {
    const { items } = page.model;
    const slowest = items.reduce(
        (best, item) => (item.unit && (!best || item.seconds > best.seconds) ? item : best),
        null,
    );
    return slowest ? `#/item/${slowest.number}` : "#/overview";
}

// ---------------------------------------------------------------- keys

function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target instanceof HTMLInputElement;
    if (event.key === "Escape") {
        if (typing) {
            event.target.blur();
            return;
        }
        page.view?.escape?.();
        return;
    }
    if (typing || document.getElementById("help").open) return;
    const unit = page.view instanceof UnitView ? page.view : null;
    const own = unit && unit.target.unit ? `#/${unit.target.base}` : firstKernel();
    const actions = {
        "?": () => document.getElementById("help").showModal(),
        t: nextTheme,
        ".": () => document.getElementById("filter").focus(),
        "/": () => (unit ? unit.focusSearch() : document.getElementById("filter").focus()),
        ArrowUp: () => page.sidebar.move(-1),
        ArrowDown: () => page.sidebar.move(1),
        k: () => page.sidebar.move(-1),
        j: () => page.sidebar.move(1),
        1: () => go("#/overview"),
        2: () => go(own),
        3: () => go(`${own}/code`),
        4: () => go("#/timeline"),
    };
    if (page.model.index.threads?.length) actions[5] = () => go("#/waves/0");
    if (unit && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
        event.preventDefault();
        unit.move(event.key === "ArrowLeft" ? -1 : 1, event.shiftKey);
        return;
    }
    if (page.view?.key?.(event)) {
        event.preventDefault();
        return;
    }
    if (actions[event.key]) {
        event.preventDefault();
        actions[event.key]();
    }
}

function drawHelp() {
    const help = document.getElementById("help");
    replace(
        help,
        h(
            "form",
            { method: "dialog" },
            h("h2", {}, "Keyboard"),
            h(
                "dl",
                {},
                KEYS.map(([keys, what]) =>
                    h("div", { class: "pair" }, h("dt", {}, h("kbd", {}, keys)), h("dd", {}, what)),
                ),
            ),
            h(
                "p",
                { class: "muted" },
                "In a graph: drag to move, wheel to zoom, click a box for its details.",
            ),
            h("button", { class: "wide" }, "Close"),
        ),
    );
}

// ---------------------------------------------------------------- theme

function setTheme(choice) {
    const root = document.documentElement;
    if (choice === "auto") delete root.dataset.theme;
    else root.dataset.theme = choice;
    const button = document.getElementById("theme");
    button.textContent = { auto: "◐", light: "☀", dark: "☾" }[choice];
    button.dataset.choice = choice;
    readTheme();
    page.view?.redraw?.();
}

function nextTheme() {
    const order = ["auto", "light", "dark"];
    const choice = order[(order.indexOf(document.getElementById("theme").dataset.choice) + 1) % 3];
    localStorage.setItem("weft-theme", choice);
    setTheme(choice);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    page.view?.redraw?.();
});

start();
