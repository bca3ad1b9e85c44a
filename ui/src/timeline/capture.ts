// A drag goes on outside of the element where it began.

export function capture(element: Element, event: PointerEvent): void {
  try {
    element.setPointerCapture(event.pointerId);
  } catch {
    // The pointer is gone already, or a script made the event: the drag then ends at the edge.
  }
}
