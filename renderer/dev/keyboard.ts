import { act, fireEvent } from "@testing-library/react";

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

const reachable = (element: HTMLElement): boolean => {
  if (element.tabIndex < 0 || element.hasAttribute("disabled") || element.closest("[hidden], [inert]") || element.getAttribute("type") === "hidden") return false;
  const folded = element.closest("details:not([open])");
  return folded === null || (element.tagName === "SUMMARY" && element.parentElement === folded);
};

/** The next stop of the Tab key in the document's order, inside the open dialog where there is one. */
export function tab(): HTMLElement {
  const dialogs = document.querySelectorAll<HTMLElement>('[role="dialog"]');
  const scope: ParentNode = dialogs[dialogs.length - 1] ?? document;
  const stops = [...scope.querySelectorAll<HTMLElement>(FOCUSABLE)].filter(reachable);
  const from = document.activeElement;
  const next = stops.find((stop) => from !== null && from !== document.body && (from.compareDocumentPosition(stop) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0) ?? stops[0]!;
  act(() => next.focus());
  return next;
}

/** Tab until a stop is reached; fails where no way leads there. */
export function tabTo(wanted: (stop: HTMLElement) => boolean, most = 60): HTMLElement {
  for (let count = 0; count < most; count++) {
    const stop = tab();
    if (wanted(stop)) return stop;
  }
  throw new Error(`not reached with ${most} times Tab; the focus is on ${document.activeElement?.outerHTML.slice(0, 120)}`);
}

/** A key on what has the focus, with what a browser does by itself: Enter and Space press, toggle and unfold. */
export function press(key: string): void {
  const on = document.activeElement as HTMLElement;
  if (!fireEvent.keyDown(on, { key })) return;
  const button = on.tagName === "BUTTON" || on.tagName === "SUMMARY";
  const clicks = key === "Enter" ? button || on.tagName === "A" : key === " " && (button || on.getAttribute("type") === "checkbox");
  if (clicks) fireEvent.click(on);
  fireEvent.keyUp(on, { key });
}

export const named = (name: string | RegExp) => (stop: HTMLElement): boolean => {
  const text = (stop.getAttribute("aria-label") ?? stop.textContent ?? "").trim();
  return typeof name === "string" ? text === name : name.test(text);
};
