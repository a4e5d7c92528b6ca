// What a page shows: each view takes a model and fills the card.

const element = (tag, options = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), options);
  made.append(...children);
  return made;
};

const milliseconds = (started) => `${(performance.now() - started).toFixed(1)} ms`;

// One call at a time; of calls that wait only the newest is kept.
function queued(work) {
  let isRunning = false, waiting = null;
  return async function next(...given) {
    if (isRunning) { waiting = given; return; }
    isRunning = true;
    try { await work(...given); } catch (error) { fail(error); }
    isRunning = false;
    if (waiting) { const latest = waiting; waiting = null; next(...latest); }
  };
}

function bars(labels) {
  const grid = element("div", { className: "bars" });
  const rows = labels.map((label) => {
    const fill = element("div", { className: "fill" });
    const share = element("div", { className: "share" });
    grid.append(element("div", { className: "label", textContent: label }),
      element("div", { className: "track" }, fill), share);
    return { fill, share };
  });
  const show = (shares) => {
    const best = shares.indexOf(Math.max(...shares));
    rows.forEach(({ fill, share }, i) => {
      fill.style.width = `${100 * shares[i]}%`;
      fill.classList.toggle("best", i === best);
      share.textContent = `${(100 * shares[i]).toFixed(1)} %`;
    });
    return best;
  };
  return { grid, show };
}

function softmax(scores, temperature = 1) {
  const top = Math.max(...scores);
  const powers = [...scores].map((score) => Math.exp((score - top) / temperature));
  const total = powers.reduce((x, y) => x + y, 0);
  return powers.map((power) => power / total);
}

const asShares = (scores, isShares) => isShares ? [...scores] : softmax(scores);

// ------------------------------------------------------------ draw something, see its class
function drawView(card, model, page) {
  const [input] = model.inputs, [output] = model.outputs;
  const [height, width] = input.shape.slice(-2);
  const size = 320, stroke = size / 12;
  const paper = element("canvas", { className: "paper", id: "paper", width: size, height: size });
  const answer = element("div", { className: "answer", id: "answer" });
  const time = element("div", { className: "time", id: "time" });
  const clear = element("button", { textContent: "Clear", id: "clear" });
  const seen = element("canvas", { width, height, style: "image-rendering: pixelated; width: 72px; border-radius: 8px; background: var(--paper)" });
  const chart = bars(page.labels);
  card.append(
    element("div", { className: "column" }, paper,
      element("div", { className: "row" }, clear, element("label", {}, "what the model sees", seen))),
    element("div", { className: "column" }, answer, chart.grid, time));
  const ink = paper.getContext("2d", { willReadFrequently: true });
  const wipe = () => {
    ink.clearRect(0, 0, size, size);
    seen.getContext("2d").clearRect(0, 0, width, height);
    chart.show(page.labels.map(() => 0));
    answer.textContent = "";
    time.textContent = "Draw with the mouse or a finger.";
  };
  const look = queued(async () => {
    const pixels = centred(ink, size, width, height, page.margin);
    if (!pixels) return;
    show(seen, pixels, width, height);
    const data = Float32Array.from(pixels, (value) => value * page.scale);
    const started = performance.now();
    const found = await model.run({ [input.name]: data });
    time.textContent = milliseconds(started);
    answer.textContent = page.labels[chart.show(asShares(found[output.name], page.isShares))];
  });
  let last = null;
  const place = (event) => {
    const box = paper.getBoundingClientRect();
    return [(event.clientX - box.left) * size / box.width, (event.clientY - box.top) * size / box.height];
  };
  const line = (event) => {
    if (!last) return;
    const now = place(event);
    Object.assign(ink, { lineWidth: stroke, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
    ink.beginPath();
    ink.moveTo(...last);
    ink.lineTo(...now);
    ink.stroke();
    last = now;
    look();
  };
  paper.addEventListener("pointerdown", (event) => {
    try { paper.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone */ }
    last = place(event);
    line(event);
  });
  paper.addEventListener("pointermove", line);
  for (const end of ["pointerup", "pointercancel"]) paper.addEventListener(end, () => { last = null; });
  clear.addEventListener("click", wipe);
  wipe();
}

// What is drawn, moved to the middle and scaled to fill all but a margin: numbers from 0 to 1.
function centred(ink, size, width, height, margin) {
  const { data } = ink.getImageData(0, 0, size, size);
  let left = size, right = -1, top = size, bottom = -1;
  for (let y = 0; y < size; y++) for (let x = 0; x < size; x++) {
    if (data[4 * (y * size + x) + 3] > 40) {
      left = Math.min(left, x); right = Math.max(right, x);
      top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
  }
  if (right < 0) return null;
  const wide = right - left + 1, high = bottom - top + 1;
  const room = 1 - 2 * margin;
  // drawn four times as large, then averaged: what a small canvas smooths depends on the browser
  const fine = 4, scale = fine * Math.min(room * width / wide, room * height / high);
  const small = new OffscreenCanvas(width * fine, height * fine).getContext("2d");
  small.imageSmoothingQuality = "high";
  const x = (width * fine - wide * scale) / 2, y = (height * fine - high * scale) / 2;
  small.drawImage(ink.canvas, left, top, wide, high, x, y, wide * scale, high * scale);
  const found = small.getImageData(0, 0, width * fine, height * fine).data;
  const pixels = new Float32Array(width * height);
  for (let row = 0; row < height * fine; row++) for (let column = 0; column < width * fine; column++) {
    const at = Math.floor(row / fine) * width + Math.floor(column / fine);
    pixels[at] += found[4 * (row * width * fine + column) + 3] / 255 / fine / fine;
  }
  return pixels;
}

function show(canvas, pixels, width, height) {
  const image = new ImageData(width, height);
  pixels.forEach((value, i) => image.data.set([value * 255, value * 255, value * 255, 255], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// ------------------------------------------------------------ drop an image
function imageView(card, model, page) {
  const [input] = model.inputs, [output] = model.outputs;
  const [channels, height, width] = input.shape.slice(-3);
  const isPicture = output.shape.length >= 3 && output.shape.at(-3) === 3;
  const before = element("canvas", { className: "picture", id: "before", width, height });
  const time = element("div", { className: "time", id: "time", textContent: "Drop an image, or try the one that is here." });
  const chooser = element("input", { type: "file", accept: "image/*", hidden: true, id: "file" });
  const drop = element("div", { className: "drop", textContent: "Drop an image here, or click to choose one", id: "drop" });
  const example = element("button", { className: "main", id: "example", textContent: "Try an example" });
  const answer = element("div", { className: "answer", id: "answer" });
  const chart = isPicture ? null : bars(page.labels);
  const after = isPicture
    ? element("canvas", { className: "picture", id: "after", width: output.shape.at(-1), height: output.shape.at(-2) })
    : null;
  card.append(
    element("div", { className: "column" }, before, drop, chooser, element("div", { className: "row" }, example)),
    element("div", { className: "column" }, ...(isPicture ? [after] : [answer, chart.grid]), time));
  const ink = before.getContext("2d", { willReadFrequently: true });
  const look = queued(async () => {
    const { data } = ink.getImageData(0, 0, width, height);
    const plane = width * height, given = new Float32Array(channels * plane);
    for (let i = 0; i < plane; i++) for (let c = 0; c < channels; c++) {
      const value = channels === 1
        ? (data[4 * i] * 0.299 + data[4 * i + 1] * 0.587 + data[4 * i + 2] * 0.114) : data[4 * i + c];
      given[c * plane + i] = (value / 255 * page.scale - (page.mean[c] ?? 0)) / (page.std[c] ?? 1);
    }
    const started = performance.now();
    const found = (await model.run({ [input.name]: given }))[output.name];
    time.textContent = milliseconds(started);
    if (isPicture) paint(after, found);
    else answer.textContent = page.labels[chart.show(asShares(found, page.isShares))];
  });
  const take = async (blob) => {
    const picture = await createImageBitmap(blob);
    const scale = Math.max(width / picture.width, height / picture.height);
    const wide = picture.width * scale, high = picture.height * scale;
    ink.drawImage(picture, (width - wide) / 2, (height - high) / 2, wide, high);
    look();
  };
  drop.addEventListener("click", () => chooser.click());
  chooser.addEventListener("change", () => chooser.files[0] && take(chooser.files[0]).catch(fail));
  for (const kind of ["dragover", "dragleave", "drop"]) drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files[0]) take(event.dataTransfer.files[0]).catch(fail);
  });
  example.addEventListener("click", () => { scene(ink, width, height); look(); });
  scene(ink, width, height);
}

function paint(canvas, planes) {
  const { width, height } = canvas, plane = width * height;
  const image = new ImageData(width, height);
  for (let i = 0; i < plane; i++) {
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = 255 * planes[c * plane + i];
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// A picture of hills under an evening sky, for who has none at hand.
function scene(ink, width, height) {
  const sky = ink.createLinearGradient(0, 0, 0, height);
  [["#20356b", 0], ["#c2607a", 0.5], ["#f7c38a", 0.72]].forEach(([color, at]) => sky.addColorStop(at, color));
  ink.fillStyle = sky;
  ink.fillRect(0, 0, width, height);
  ink.fillStyle = "#fff1c9";
  ink.beginPath();
  ink.arc(width * 0.68, height * 0.5, width * 0.09, 0, 7);
  ink.fill();
  [["#6d5a86", 0.62, 0.10, 3.1], ["#3f4a6e", 0.72, 0.08, 5.3], ["#1e2a3c", 0.84, 0.06, 8.7]]
    .forEach(([color, level, swing, turns], hill) => {
      ink.fillStyle = color;
      ink.beginPath();
      ink.moveTo(0, height);
      for (let x = 0; x <= width; x++) {
        ink.lineTo(x, height * (level + swing * Math.sin(turns * x / width + 2 * hill)));
      }
      ink.lineTo(width, height);
      ink.fill();
    });
  ink.fillStyle = "#0f1722";
  for (const [x, tall] of [[0.12, 0.34], [0.2, 0.26], [0.86, 0.3]]) {
    ink.beginPath();
    ink.moveTo(width * x, height * (0.92 - tall));
    ink.lineTo(width * (x + 0.06), height * 0.95);
    ink.lineTo(width * (x - 0.06), height * 0.95);
    ink.fill();
  }
}

// ------------------------------------------------------------ text, one token at a time
function textView(card, model, page) {
  const [input] = model.inputs, [output] = model.outputs, [position] = model.sizes;
  const prompt = element("textarea", { id: "prompt", rows: 2, value: page.prompt });
  const write = element("button", { className: "main", id: "write", textContent: "Write" });
  const stop = element("button", { id: "stop", textContent: "Stop", disabled: true });
  const heat = element("input", { type: "range", id: "heat", min: 0, max: 1.5, step: 0.05, value: 0.7 });
  const shown = element("output", { textContent: "0.70" });
  heat.addEventListener("input", () => { shown.textContent = Number(heat.value).toFixed(2); });
  const written = element("div", { className: "written", id: "written" });
  const time = element("div", { className: "time", id: "time" });
  card.append(element("div", { className: "column" }, prompt,
    element("div", { className: "row" }, write, stop, element("label", {}, "temperature", heat, shown)),
    written, time));
  const tokens = new Map(page.labels.map((token, i) => [token, i]));
  let isStopped = true;
  const generate = async () => {
    const start = [...prompt.value].map((letter) => tokens.get(letter)).filter((token) => token !== undefined);
    if (!start.length) start.push(tokens.get("\n") ?? 0);
    const head = element("span", { className: "prompt", textContent: start.map((t) => page.labels[t]).join("") });
    const body = element("span");
    written.replaceChildren(head, body);
    model.reset();
    const room = position.high - position.low + 1, started = performance.now();
    let count = 0, scores = null, next = start[0];
    for (let at = 0; at < room && !isStopped; at++) {
      const token = at < start.length ? start[at] : next;
      const given = { [input.name]: new Int32Array([token]), [position.name]: position.low + at };
      scores = (await model.run(given))[output.name];
      count++;
      const rate = (1000 * count / (performance.now() - started)).toFixed(0);
      time.textContent = `${count} of ${room} tokens, ${rate} a second`;
      if (at + 1 < start.length) continue;
      next = choose(scores, Number(heat.value));
      if (at + 1 < room) body.append(page.labels[next]);
      if (count % 4 === 0) await new Promise((done) => setTimeout(done));
    }
  };
  write.addEventListener("click", async () => {
    isStopped = false;
    write.disabled = true;
    stop.disabled = false;
    try { await generate(); } catch (error) { fail(error); }
    isStopped = true;
    write.disabled = false;
    stop.disabled = true;
  });
  stop.addEventListener("click", () => { isStopped = true; });
}

function choose(scores, temperature) {
  if (temperature < 0.01) return scores.indexOf(Math.max(...scores));
  const shares = softmax(scores, temperature);
  let left = Math.random();
  return Math.max(0, shares.findIndex((share) => (left -= share) <= 0));
}

// ------------------------------------------------------------ numbers in, numbers out
function plainView(card, model) {
  const fields = [...model.inputs, ...model.sizes].map((value) => {
    const isSize = value.shape === undefined;
    const words = isSize ? `${value.name}: ${value.low} to ${value.high}`
      : `${value.name}: ${value.dtype} [${value.shape.map((s) => typeof s === "number" ? s : JSON.stringify(s))}]`;
    const field = element("textarea", { id: `in-${value.name}`, rows: isSize ? 1 : 3,
      value: isSize ? String(value.low) : "random" });
    return { value, isSize, field, row: element("label", { style: "display: block" }, words, field) };
  });
  const run = element("button", { className: "main", id: "run", textContent: "Run" });
  const time = element("div", { className: "time", id: "time" });
  const result = element("pre", { id: "result" });
  card.append(
    element("div", { className: "column" }, ...fields.map(({ row }) => row), element("div", { className: "row" }, run)),
    element("div", { className: "column" }, result, time));
  run.addEventListener("click", async () => {
    try {
      const given = {}, sizes = {};
      for (const { value, isSize, field } of fields) if (isSize) {
        given[value.name] = sizes[value.name] = Number(field.value);
      }
      for (const { value, isSize, field } of fields) {
        if (isSize) continue;
        const Kind = ARRAYS[value.dtype];
        const count = model.shapeOf(value, sizes).reduce((x, y) => x * y, 1);
        const isBig = value.dtype.endsWith("int64");
        const numbers = field.value.trim() === "random"
          ? Array.from({ length: count }, () => value.dtype.startsWith("float") ? Math.random() : 0)
          : field.value.split(/[\s,]+/).filter(Boolean).map(Number);
        given[value.name] = Kind.from(isBig ? numbers.map((n) => BigInt(n)) : numbers);
      }
      const started = performance.now();
      const found = await model.run(given);
      time.textContent = milliseconds(started);
      result.textContent = Object.entries(found)
        .map(([name, array]) => `${name}: ${[...array.slice(0, 200)].map((x) => typeof x === "number" ? +x.toPrecision(6) : x).join(", ")}${array.length > 200 ? ", …" : ""}`)
        .join("\n\n");
    } catch (error) { fail(error); }
  });
}

const VIEWS = { draw: drawView, image: imageView, text: textView, plain: plainView };
