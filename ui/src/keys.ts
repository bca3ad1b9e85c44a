// What keys do anywhere on the page. Where somebody types, they type.

export const KEYS: [string, string][] = [
  ["j", "next result"],
  ["k", "previous result"],
  ["/", "search the visible table or timeline"],
  ["?", "show this help"],
  ["Esc", "close a dialog or tooltip, leave a search box, zoom out, clear the selection"],
];
export const TIMELINE_KEYS: [string, string][] = [
  ["w s", "zoom in and out"],
  ["a d", "earlier and later"],
  ["\u2191 \u2193", "move between rows"],
  ["Enter", "open the lanes of a rank"],
  ["p", "pin a row to the top"],
  ["x", "select what is visible"],
  ["Shift+\u2190 Shift+\u2192", "previous and next event"],
  ["0", "show everything"],
];

export interface Actions {
  help: HTMLDialogElement;
  jump(by: number): void;
  current(): HTMLElement;
}

export function listenToKeys(actions: Actions): void {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    if (event.key === "Escape" && target.matches("input[type=search]")) target.blur();
    if (target.matches("input, select, textarea, [contenteditable]") || actions.help.open) return;
    if (event.key === "j") actions.jump(1);
    else if (event.key === "k") actions.jump(-1);
    else if (event.key === "?") actions.help.showModal();
    else if (event.key === "/") search(actions.current());
    else return;
    event.preventDefault();
  });
}

/** The first search box on the screen, else that of the present result, else the next one below. */
function search(current: HTMLElement): void {
  const boxes = [...document.querySelectorAll<HTMLInputElement>("main input[type=search]")];
  const inSight = boxes.find((box) => {
    const { top, bottom } = box.getBoundingClientRect();
    return bottom > 0 && top < innerHeight;
  });
  const below = boxes.find((box) => box.getBoundingClientRect().top > 0);
  (inSight ?? boxes.find((box) => current.contains(box)) ?? below)?.focus();
}
