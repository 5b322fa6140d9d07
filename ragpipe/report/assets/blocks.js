// blocks.js: the data blocks of the page (pages/data_blocks.py), decoded when they are asked for.

const arrivedBlocks = new Map();

/** What a side file calls (pages/side_files.py): here is a block. */
function ragpipeBlock(name, text) {
  arrivedBlocks.set(name, text);
}

/** The blocks that stand in scripts beside the page. A script is loaded when one of its blocks is asked for. */
class SideFiles {
  /** `files`: [[file, [block, ...]], ...]. The texts of the `kept` files that were used last are kept. */
  constructor({ folder, files }, kept = 6) {
    Object.assign(this, { folder, kept, loaded: new Map() });
    this.places = new Map(files.flatMap(([file, names]) => names.map((name) => [name, file])));
    this.names = new Map(files);
    const createScriptURL = (file) => {
      if (!this.names.has(file) || !/^[\w.-]+\/[\w-]+\.js$/.test(`${folder}/${file}`)) throw new TypeError(`${file} is no file of this page`);
      return `${folder}/${file}`;
    };
    this.policy = globalThis.trustedTypes?.createPolicy("ragpipe-side-files", { createScriptURL }) ?? { createScriptURL };
  }

  /** The text of a block. Rejects with an Error that names the file when it is missing or damaged. */
  async text(name) {
    const file = this.places.get(name);
    if (!file) throw new Error(`the page has no block ${name}`);
    const texts = this.loaded.get(file) ?? this.load(file);
    this.loaded.delete(file);
    this.loaded.set(file, texts);
    if (this.loaded.size > this.kept) this.loaded.delete(this.loaded.keys().next().value);
    texts.catch(() => this.loaded.delete(file));
    const text = (await texts).get(name);
    if (this.names.get(file).length === 1) this.loaded.delete(file); // a large block, read as a whole
    return text;
  }

  load(file) {
    const path = `${this.folder}/${file}`;
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.onload = () => {
        script.remove();
        const texts = new Map(this.names.get(file).map((name) => [name, arrivedBlocks.get(name)]));
        for (const name of texts.keys()) arrivedBlocks.delete(name);
        if ([...texts.values()].every((text) => typeof text === "string")) resolve(texts);
        else reject(new Error(`${path} beside the page is damaged: make the page again`));
      };
      script.onerror = () => {
        script.remove();
        reject(new Error(`${path} is missing beside the page: keep the folder ${this.folder} with it, or open the run with python -m ragpipe task=view`));
      };
      script.src = this.policy.createScriptURL(file);
      document.head.append(script);
    });
  }
}

class DataBlocks {
  /** Decoded JSON blocks are kept, at most `kept` of them: those that were used last. */
  constructor(kept = 16) {
    this.kept = kept;
    this.decoded = new Map();
    this.side = null;
  }

  /** The text of a block, from the page or from a file beside it. */
  async text(name) {
    const element = byId(`block-${name}`);
    if (element) return element.textContent;
    if (!byId("block-files")) throw new Error(`the page has no block ${name}`);
    this.side ??= this.parse("files").then((files) => new SideFiles(files));
    return (await this.side).text(name);
  }

  /** The bytes of a block. Rejects with an Error that names the block, or its file, when it is missing or broken. */
  async bytes(name) {
    const text = await this.text(name);
    try {
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
