// Elements from data. Everything that comes from a trace goes through text nodes, never HTML.

export function h(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === undefined || value === null || value === false) continue;
        if (name === "on")
            for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
        else if (name === "data") Object.assign(element.dataset, value);
        else if (name === "style")
            for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
        else if (name === "href" && !String(value).startsWith("#"))
            throw new Error("links stay on this page");
        else element.setAttribute(name, value === true ? "" : value);
    }
    element.append(
        ...children
            .flat()
            .filter((child) => child !== null && child !== undefined && child !== false),
    );
    return element;
}

export function replace(element, ...children) {
    element.replaceChildren(
        ...children
            .flat()
            .filter((child) => child !== null && child !== undefined && child !== false),
    );
}

export function icon(path) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", path);
    svg.append(line);
    return svg;
}

export function segmented(label, options, chosen, choose) {
    const buttons = options.map(([value, text, title]) =>
        h(
            "button",
            {
                type: "button",
                role: "radio",
                "aria-checked": String(value === chosen),
                title,
                data: { value },
                on: { click: () => choose(value) },
            },
            text,
        ),
    );
    return h("div", { class: "segmented", role: "radiogroup", "aria-label": label }, buttons);
}
