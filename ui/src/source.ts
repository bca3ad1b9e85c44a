// Where the page's data comes from: text that stands in the file, or answers of a server (live.ts).

import type { Live } from "./live";
import type { Blob as BlobRef, Page } from "./types";

export interface Source {
  page: Page;
  numbers(blob: BlobRef): Uint8Array | Uint32Array | Float64Array;
  /** Where a server gave the page. */
  live?: Live;
}

/** Plain data with the numbers that it refers to, as they are packed in files and answers. */
export interface Unpacked<T> {
  data: T;
  blobs: number;
  numbers: Source["numbers"];
}

export function isEmbedded(): boolean {
  return document.querySelector("script.data") !== null;
}

export async function embedded(): Promise<Source> {
  const texts = [...document.querySelectorAll("script.data")].map((element) => element.textContent ?? "");
  return unpacked(texts);
}

export async function unpacked(texts: string[]): Promise<Source> {
  const { data, numbers } = await unpackedAs<Page>(texts);
  return { page: data, numbers };
}

export async function unpackedAs<T>(texts: string[]): Promise<Unpacked<T>> {
  const [json, ...blobs] = await Promise.all(texts.map(inflated));
  const data = JSON.parse(new TextDecoder().decode(json)) as T;
  return { data, blobs: blobs.length, numbers: (blob) => typed(blobs[blob.blob] as Uint8Array, blob.type) };
}

async function inflated(text: string): Promise<Uint8Array> {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let place = 0; place < bytes.length; place++) bytes[place] = characters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function typed(bytes: Uint8Array, type: BlobRef["type"]): Uint8Array | Uint32Array | Float64Array {
  if (type === "u1") return bytes;
  const buffer = bytes.buffer as ArrayBuffer;
  return type === "u4" ? new Uint32Array(buffer) : new Float64Array(buffer);
}
