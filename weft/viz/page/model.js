// The index of a trace, with what the page computes from it.

export function modelOf(index) {
    const byKey = new Map(index.units.filter((unit) => unit.key).map((unit) => [unit.key, unit]));
    const byNumber = new Map(index.units.map((unit) => [unit.number, unit]));
    const items = index.items.map((item, number) => {
        const unit = byKey.get(item.key) ?? null;
        // a kernel whose last op was made by the compiler itself still has lines in it
        return { ...item, number, unit, origin: item.origin ?? unit?.lines?.[0] ?? null };
    });
    const total = items.reduce((sum, item) => sum + item.seconds, 0);
    for (const item of items) item.share = total > 0 ? item.seconds / total : 0;
    const schedules = index.schedules.map((schedule, number) => {
        const own = items.slice(schedule.first, schedule.first + schedule.count);
        return {
            ...schedule,
            number,
            items: own,
            seconds: own.reduce((sum, item) => sum + item.seconds, 0),
            unit: byNumber.get(schedule.unit) ?? null,
        };
    });
    const loose = items.filter((item) => item.schedule < 0);
    const other = index.units.find((unit) => unit.kind === "other" && unit.steps > 0) ?? null;
    const most = items.reduce((largest, item) => Math.max(largest, item.seconds), 0);
    return {
        index,
        items,
        schedules,
        loose,
        other,
        total,
        most,
        units: index.units,
        rules: index.rules,
    };
}

export function lineText(model, origin) {
    return origin ? (model.index.lines[origin[0]]?.[origin[1]]?.trim() ?? "") : "";
}

export function linesAround(model, origin) {
    const texts = model.index.lines[origin[0]] ?? {};
    return Object.keys(texts)
        .map(Number)
        .filter((number) => Math.abs(number - origin[1]) <= 3)
        .sort((a, b) => a - b)
        .map((number) => [number, texts[number]]);
}

export function rates(item) {
    const { unit } = item;
    if (!unit || !item.launches || !(item.seconds > 0)) return [];
    const mean = item.seconds / item.launches;
    const result = [];
    if (unit.ops)
        result.push([
            `${number(unit.ops / mean / 1e9)} GFLOP/s`,
            "Arithmetic, by the compiler's estimate",
        ]);
    if (unit.mem)
        result.push([
            `${number(unit.mem / mean / 1e9)} GB/s`,
            "Memory touched, by the compiler's estimate",
        ]);
    return result;
}

function number(value) {
    return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}
