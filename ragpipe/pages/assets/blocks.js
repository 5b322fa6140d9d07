// blocks.js: the data blocks of the page (pages/data_blocks.py), decoded when they are asked for.

class DataBlocks {
  /** Decoded JSON blocks are kept, at most `kept` of them: those that were used last. */
  constructor(kept = 16) {
    this.kept = kept;
    this.decoded = new Map();
  }

  /** The bytes of a block. Rejects with an Error that names the block when it is missing or broken. */
  async bytes(name) {
    const element = byId(`block-${name}`);
    if (!element) throw new Error(`the page has no block ${name}`);
    try {
      const text = element.textContent;
      const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
      return await new Response(stream).arrayBuffer();
    } catch (error) {
      throw new Error(`block ${name} of the page is broken (${error.message || error.name})`);
    }
  }

  /** The value of a JSON block. */
  json(name) {
    const value = this.decoded.get(name) ?? this.parse(name);
    this.decoded.delete(name);
    this.decoded.set(name, value);
    if (this.decoded.size > this.kept) this.decoded.delete(this.decoded.keys().next().value);
    value.catch(() => this.decoded.delete(name));
    return value;
  }

  async parse(name) {
    const text = new TextDecoder().decode(await this.bytes(name));
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`block ${name} of the page is broken (${error.message})`);
    }
  }

  /** One item of numbered blocks: `item("d", 130, 64)` is item 2 of block d2. */
  async item(prefix, number, perBlock) {
    return (await this.json(`${prefix}${Math.floor(number / perBlock)}`))[number % perBlock];
  }
}

/** The columns of the block `cols` by name, as typed arrays over one buffer. */
function columnsOf(buffer, layout, rows) {
  const kinds = { f4: Float32Array, u1: Uint8Array };
  return Object.fromEntries(layout.map(({ name, type, offset }) => [name, new kinds[type](buffer, offset, rows)]));
}
