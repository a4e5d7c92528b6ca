// A plan on WebGPU: the same interface as the loader's Model, only that `run` gives a promise.

class GpuModel {
  static async create(plan, weights) {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) return null;
    const wanted = {};
    for (const name of ["maxBufferSize", "maxStorageBufferBindingSize"]) {
      wanted[name] = adapter.limits[name];
    }
    const device = await adapter.requestDevice({ requiredLimits: wanted });
    const model = new GpuModel(plan, device);
    device.pushErrorScope("validation");
    await model.prepare(weights);
    const error = await device.popErrorScope();
    if (error) throw new Error(error.message);
    model.adapter = adapter.info?.description || adapter.info?.vendor || "";
    return model;
  }

  constructor(plan, device) {
    Object.assign(this, { plan, device, name: plan.name, inputs: plan.inputs,
      outputs: plan.outputs, sizes: plan.sizes, lost: null });
    device.lost.then((info) => { this.lost = info.message || "the device is lost"; });
  }

  async prepare(weights) {
    const { device, plan } = this;
    const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
    this.buffers = plan.buffers.map((size) => device.createBuffer({ size: Math.max(size, 256), usage }));
    device.queue.writeBuffer(this.buffers[0], 0, weights);
    this.reset();
    const kinds = { r: "read-only-storage", w: "storage" };
    this.pipelines = await Promise.all(plan.kernels.map(({ code, entry, access }) => {
      const layout = device.createBindGroupLayout({
        entries: [...access].flatMap((letter, binding) => letter === "-" ? [] : [{
          binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: kinds[letter] },
        }]),
      });
      return device.createComputePipelineAsync({
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: device.createShaderModule({ code }), entryPoint: entry },
      });
    }));
    this.steps = plan.steps.map((step) => this.prepareStep(step));
    const bytes = Math.max(256, plan.buffers[plan.outputBuffer]);
    this.staging = device.createBuffer({ size: bytes, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
  }

  prepareStep(step) {
    if (step.copy) return step;
    const { device } = this;
    const entries = step.bindings.flatMap((part, binding) => part === null ? [] : [{
      binding, resource: { buffer: this.buffers[part[0]], offset: part[1], size: part[2] },
    }]);
    let values = null;
    if (step.values.length) {
      const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST;
      values = device.createBuffer({ size: Math.max(16, 4 * step.values.length), usage });
      entries.push({ binding: step.bindings.length, resource: { buffer: values } });
    }
    const pipeline = this.pipelines[step.kernel];
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    return { ...step, pipeline, group, valueBuffer: values };
  }

  shapeOf(value, sizes = {}) { return value.shape.map((size) => evaluate(size, sizes)); }

  async run(given = {}) {
    if (this.lost) throw new Error(this.lost);
    const { device, plan } = this;
    const sizes = checkSizes(this, given);
    for (const value of this.inputs) {
      const data = checkInput(this, value, given, sizes);
      const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
      const whole = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
      whole.set(bytes);
      device.queue.writeBuffer(this.buffers[plan.inputBuffer], value.offset, whole);
    }
    for (const step of this.steps) {
      if (!step.valueBuffer) continue;
      const numbers = new Int32Array(step.values.map((value) => evaluate(value, sizes)));
      device.queue.writeBuffer(step.valueBuffer, 0, numbers);
    }
    const encoder = device.createCommandEncoder();
    let pass = null;
    for (const step of this.steps) {
      if (step.copy) {
        pass?.end();
        pass = null;
        const [source, from, target, to, bytes] = step.copy;
        encoder.copyBufferToBuffer(this.buffers[source], from, this.buffers[target], to, bytes);
        continue;
      }
      pass ??= encoder.beginComputePass();
      pass.setPipeline(step.pipeline);
      pass.setBindGroup(0, step.group);
      pass.dispatchWorkgroups(...step.groups.map((size) => evaluate(size, sizes)));
    }
    pass?.end();
    const output = this.buffers[plan.outputBuffer];
    encoder.copyBufferToBuffer(output, 0, this.staging, 0, this.staging.size);
    device.queue.submit([encoder.finish()]);
    await this.staging.mapAsync(GPUMapMode.READ);
    const memory = this.staging.getMappedRange();
    const found = {};
    for (const value of this.outputs) {
      const Kind = ARRAYS[value.dtype];
      const count = value.shape.includes(null)
        ? value.count : this.shapeOf(value, sizes).reduce((x, y) => x * y, 1);
      found[value.name] = new Kind(memory, value.offset, count).slice();
    }
    this.staging.unmap();
    return found;
  }

  // The state as it was in the beginning.
  reset() {
    for (const [to, data, bytes] of this.plan.states) {
      const start = data === null ? new Uint8Array(bytes) : decode(data);
      this.device.queue.writeBuffer(this.buffers[this.plan.stateBuffer], to, start);
    }
  }
}
