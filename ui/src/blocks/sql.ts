// A box for SQL, with the tables that there are; answered by the server.

import "./sql.css";
import { h } from "../dom";
import type { Context } from "./index";
import { saveTableMenu } from "../take/save";
import type { Sql, Table, TableDoc } from "../types";
import { drawTable } from "./table";

const EXAMPLE = "select rank, kind, count(*) as events, sum(dur) as ns\nfrom events\ngroup by all\norder by ns desc\nlimit 20";

export function drawSql(block: Sql, context: Context): Element {
  const { live } = context.source;
  if (!live) return h("p", { class: "muted" }, "To run SQL, use lostflops serve RUN or lostflops sql RUN.");
  const box = h("textarea", {
    rows: 6,
    spellcheck: "false",
    autocomplete: "off",
    "aria-label": "SQL query",
    keydown: (event) => {
      const { key, ctrlKey, metaKey } = event as KeyboardEvent;
      if (key === "Enter" && (ctrlKey || metaKey)) void run();
    },
  }) as HTMLTextAreaElement;
  box.value = EXAMPLE;
  const button = h("button", { type: "button", title: "Ctrl+Enter", click: () => void run() }, "Run");
  const answer = h("div", { class: "sql-answer", "aria-live": "polite" });
  let asked: AbortController | null = null;

  async function run(): Promise<void> {
    asked?.abort();
    const own = (asked = new AbortController());
    answer.replaceChildren(h("p", { class: "muted" }, "Running…"));
    const began = performance.now();
    try {
      const result = await live!.sql(box.value, own.signal);
      const took = `${result.verdict} ${Math.round(performance.now() - began)} ms.`;
      const [table] = result.blocks;
      answer.replaceChildren(...(table?.kind === "Table" ? shown(took, table) : [h("p", { class: "muted" }, took)]));
    } catch (error) {
      if (own.signal.aborted) return;
      answer.replaceChildren(h("pre", { class: "sql-error", role: "alert" }, (error as Error).message));
    }
  }

  function shown(took: string, table: Table): Element[] {
    const save = table.rows.length ? saveTableMenu(table, context.source, ["sql", "result"]) : null;
    return [h("div", { class: "sql-said" }, h("p", { class: "muted" }, took), save), drawTable(table)];
  }

  return h(
    "div",
    { class: "sql" },
    h("div", {}, box, h("p", { class: "muted" }, button, " or Ctrl+Enter. Limits: 10,000 rows, 1 MB, 30 s."), answer),
    h("div", { class: "sql-tables", role: "region", "aria-label": "Tables", tabindex: 0 }, ...block.tables.map(described)),
  );
}

function described(table: TableDoc): Element {
  const columns = table.columns.map((column) =>
    h(
      "li",
      {},
      h("code", {}, column.name),
      h("span", { class: "muted" }, ` ${column.type.toLowerCase()}${column.unit ? `, ${column.unit}` : ""}: ${column.doc}`),
    ),
  );
  return h("details", {}, h("summary", { title: table.doc }, h("code", {}, table.name)), h("p", {}, table.doc), h("ul", {}, ...columns));
}
