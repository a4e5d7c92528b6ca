// Numbers for people.

export function time(seconds) {
    if (!(seconds > 0)) return "0";
    if (seconds >= 100) return `${seconds.toFixed(0)} s`;
    if (seconds >= 1) return `${seconds.toFixed(2)} s`;
    if (seconds >= 1e-3) return `${digits(seconds * 1e3)} ms`;
    if (seconds >= 1e-6) return `${digits(seconds * 1e6)} µs`;
    return `${digits(seconds * 1e9)} ns`;
}

// A mark on a scale: as short as the number allows.
export function mark(seconds) {
    return time(seconds)
        .replace(/(\.\d*?)0+ /, "$1 ")
        .replace(". ", " ");
}

export function digits(value) {
    if (value >= 100) return value.toFixed(0);
    if (value >= 10) return value.toFixed(1);
    return value.toFixed(2);
}

export function bytes(count) {
    const units = ["B", "KB", "MB", "GB", "TB"];
    let unit = 0;
    while (Math.abs(count) >= 1000 && unit < units.length - 1) {
        count /= 1000;
        unit += 1;
    }
    return `${unit === 0 ? count : digits(count)} ${units[unit]}`;
}

export function count(value, noun, plural = `${noun}s`) {
    const text = value.toLocaleString("en-US");
    return noun === undefined ? text : `${text} ${value === 1 ? noun : plural}`;
}

export function percent(share) {
    if (!(share > 0)) return "";
    return share < 0.001
        ? "<0.1%"
        : share < 0.0995
          ? `${(share * 100).toFixed(1)}%`
          : `${(share * 100).toFixed(0)}%`;
}

export function fileName(path) {
    return String(path).split(/[\\/]/).pop();
}

export function place(origin) {
    return origin ? `${fileName(origin[0])}:${origin[1]}` : "";
}
