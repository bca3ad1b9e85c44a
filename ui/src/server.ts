// Questions to the server that gave the page, with the token of its address.

import { type Unpacked, unpackedAs } from "./source";

const KEPT = "lostflops-token";

/** The server said no, and why. */
export class Refused extends Error {}
/** Nobody answers. */
export class Lost extends Error {}

/** From the address, where it does not stay: it would be in bookmarks and on screens. A reload finds it in this tab. */
export function token(): string {
  const found = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (found) {
    sessionStorage.setItem(KEPT, found);
    history.replaceState(null, "", location.pathname);
  }
  return found ?? sessionStorage.getItem(KEPT) ?? "";
}

export class Server {
  private run = "";

  constructor(
    private readonly token: string,
    private readonly changed: () => void,
  ) {}

  async packed<T>(path: string, asked: Asked = {}): Promise<Unpacked<T>> {
    return unpackedAs<T>((await (await this.ask(path, asked)).json()) as string[]);
  }

  async json<T>(path: string, asked: Asked = {}): Promise<T> {
    return (await (await this.ask(path, asked)).json()) as T;
  }

  async bytes(path: string): Promise<ArrayBuffer> {
    return (await this.ask(path, {})).arrayBuffer();
  }

  private async ask(path: string, { parameters, body, signal }: Asked): Promise<Response> {
    const query = parameters ? `?${new URLSearchParams(parameters)}` : "";
    const headers: Record<string, string> = { Authorization: `Bearer ${this.token}` };
    if (body) headers["Content-Type"] = "application/json";
    // Relative: behind a proxy, or among the runs of a fleet, the page is below a path of its own.
    const response = await fetch(`.${path}${query}`, {
      method: body ? "POST" : "GET",
      headers,
      body: body ? JSON.stringify(body) : null,
      signal: signal ?? null,
    }).catch((error: unknown) => {
      throw signal?.aborted ? error : new Lost("The server is not responding.");
    });
    if (!response.ok) throw new Refused(await why(response));
    this.notice(response.headers.get("Lostflops-Run") ?? "");
    return response;
  }

  private notice(run: string): void {
    if (this.run && run && run !== this.run) this.changed();
    this.run = run || this.run;
  }
}

export interface Asked {
  parameters?: Record<string, string>;
  body?: unknown;
  signal?: AbortSignal;
}

async function why(response: Response): Promise<string> {
  const said = (await response.json().catch(() => ({}))) as { error?: string };
  return said.error ?? `The server returned HTTP status ${response.status}.`;
}
