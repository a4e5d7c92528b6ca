// The page begins: WebGPU where there is, else WebAssembly; `#wasm` or `#webgpu` asks for one.

const badge = document.getElementById("backend");
const decode = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function fail(error) {
  console.error(error);
  badge.textContent = String(error.message ?? error);
  badge.classList.add("bad");
}

async function wasmModel(weights) {
  const module = await WebAssembly.compile(decode(PAGE.module));
  const model = await load(module);
  const memory = new Uint8Array(model.instance.exports.memory.buffer);
  for (const [to, from, bytes] of PAGE.moduleWeights) memory.set(weights.subarray(from, from + bytes), to);
  return model;
}

async function begin() {
  const weights = decode(PAGE.weights);
  const asked = location.hash.slice(1);
  let model = null, why = "";
  if (PAGE.plan && asked !== "wasm") {
    try {
      model = await GpuModel.create(PAGE.plan, weights);
    } catch (error) {
      why = error.message;
      console.warn("WebGPU:", error.message);
    }
  }
  badge.textContent = model ? "WebGPU" : "WebAssembly";
  badge.title = model ? model.adapter : why || PAGE.whyNot;
  if (!model && asked === "webgpu") throw new Error(`no WebGPU: ${why || PAGE.whyNot || "the browser has none"}`);
  model ??= await wasmModel(weights);
  VIEWS[PAGE.view](document.getElementById("card"), model, PAGE);
  document.body.dataset.ready = model instanceof GpuModel ? "webgpu" : "wasm";
  globalThis.model = model;
}

begin().catch(fail);
