import { useEffect, useRef } from "react";

/**
 * For a dialog that is there only while it is open: when it goes, the focus returns to where it was, or goes to the element with the id in
 * `next`, where the act that it was for has shown something. Else the keyboard would start again at the top of the page.
 */
export function useReturnFocus(): { next(elementId: string): void } {
  const opener = useRef<Element | null>(null);
  opener.current ??= document.activeElement;
  const nextId = useRef<string | null>(null);
  useEffect(() => () => {
    const from = opener.current;
    const id = nextId.current;
    // After what stands in its place is in the document.
    setTimeout(() => {
      const to = (id === null ? null : document.getElementById(id)) ?? from;
      if (to instanceof HTMLElement && to.isConnected) to.focus();
    });
  }, []);
  return useRef({ next: (elementId: string) => { nextId.current = elementId; } }).current;
}
