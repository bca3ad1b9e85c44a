// Reads the page's data and shows it.

import "./style.css";
import { hatches } from "./hatching";
import { serve } from "./live";
import { followAddress } from "./selection";
import { Shell } from "./shell";
import { embedded, isEmbedded } from "./source";

async function start(): Promise<void> {
  const root = document.getElementById("app")!;
  document.body.append(hatches());
  if (!isEmbedded()) return serve(root);
  followAddress();
  const source = await embedded();
  const shell = new Shell(root, source);
  for (const result of source.page.results) shell.add(result);
  shell.ready();
}

void start();
