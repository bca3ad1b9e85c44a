// What is looked at, as Markdown for a pull request or a chat: the verdict, the selection in words, findings, and the ledger.
//
// Text from traces is data: it cannot become markup. As in show/report/markdown.py.

import { textOf } from "../blocks/findings";
import type { Selection } from "../selection";
import { describeSelection } from "../selection-words";
import type { Findings, Lines, Result } from "../types";
import { formatNs, formatShare, printable } from "../units";

const SPECIAL = /[\\`*_[\]<>|#~&$]/g;

const OF_COMPARISON = ["findings_a", "findings_b"];

export function excerpt(title: string, results: Result[], selection: Selection): string {
  // Findings of the two runs of a comparison are each run's own.
  const own = results.filter(({ name }) => !OF_COMPARISON.includes(name));
  const ledger = own.flatMap(({ blocks }) => blocks).find((block): block is Lines => block.kind === "Lines" && block.total_ns > 0);
  const most = mostFindings(own);
  const each = most ? [most] : results.flatMap((result) => mostFindings([result], result.title) ?? []);
  const parts = [
    `# ${escape(title)}`,
    escape(results[0]?.verdict ?? ""),
    formatSelected(selection),
    ...each.map(formatFindings),
    ledger ? formatLedger(ledger) : "",
  ];
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

/** The block with most findings, under a title. */
function mostFindings(results: Result[], title = ""): Findings | null {
  const found = results.flatMap(({ blocks }) => blocks).filter((block): block is Findings => block.kind === "Findings");
  const most = found.reduce<Findings | null>((best, one) => (one.items.length > (best?.items.length ?? 0) ? one : best), null);
  return most && { ...most, title: title || most.title };
}

function escape(words: string): string {
  return printable(words).replace(SPECIAL, (mark) => `\\${mark}`);
}

/** The selection in words; empty where all of the run is looked at. */
function formatSelected(selection: Selection): string {
  const words = describeSelection(selection).map(escape);
  const said = selection.notes.map(([at, note]) => `- At ${formatNs(at)}: ${escape(note)}`);
  return [words.length ? `Selected: ${words.join("; ")}.` : "", said.join("\n")].filter(Boolean).join("\n\n");
}

function formatFindings(block: Findings): string {
  const items = block.items.map((one, place) => {
    const level = one.level === "suspected" ? "Suspected: " : "";
    const lines = [`${place + 1}. **${level}${escape(one.what)}**`, `   - Saves: ${escape(textOf(one.saving))}`, `   - Fix: ${escape(one.fix)}`];
    return lines.join("\n");
  });
  return `## ${escape(block.title || "Findings")}\n\n${items.join("\n")}`;
}

/** Of the whole run: parts of it are in the selection's own tables. */
function formatLedger(block: Lines): string {
  const row = (cells: string[]): string => `| ${cells.join(" | ")} |`;
  const per = block.unit ? `time per ${escape(block.unit)}` : "time";
  const lines = block.items.filter(({ ns }) => ns > 0);
  const rows = lines.map(({ name, ns, share }) => row([escape(name), formatNs(ns / block.per), formatShare(share)]));
  const total = row(["total", formatNs(block.total_ns / block.per), formatShare(1)]);
  const heads = [row(["line", per, "share"]), "| --- | ---: | ---: |"];
  return [`## ${escape(block.title || "Ledger")}, whole run`, "", ...heads, ...rows, total].join("\n");
}
