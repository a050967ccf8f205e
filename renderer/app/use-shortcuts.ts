import { useEffect } from "react";
import { PAGE_KEYS } from "./page-keys.js";
import { go, PAGES } from "./router.js";
import { useUiStore } from "./ui.js";

/** How long `g` waits for its second key. */
const CHORD_MS = 1200;

const typing = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || /^(input|textarea|select)$/i.test(target.tagName));

/** The shortcuts of the whole page. Single letters are left alone while somebody types or a dialog is open. */
export function useShortcuts(): void {
  const ui = useUiStore();
  useEffect(() => {
    let chordAt = -Infinity;
    const onKey = (event: KeyboardEvent) => {
      const { set } = ui.getState();
      if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        set({ palette: true });
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || document.querySelector('[role="dialog"]')) return;
      if (performance.now() - chordAt < CHORD_MS) {
        chordAt = -Infinity;
        const page = PAGES.find((each) => PAGE_KEYS[each] === `g ${event.key.toLowerCase()}`);
        if (page) {
          event.preventDefault();
          go(page);
          // The next Tab is the first stop of the page, not of the header.
          document.getElementById("main")?.focus();
        }
        return;
      }
      switch (event.key) {
        case "g":
          chordAt = performance.now();
          return;
        case "?":
          event.preventDefault();
          set({ shortcuts: true });
          return;
        case "/": {
          const filter = document.querySelector<HTMLInputElement>("input[data-filter]");
          if (filter) {
            event.preventDefault();
            filter.focus();
            filter.select();
          }
          return;
        }
        case "n":
          event.preventDefault();
          set({ addNodes: true });
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [ui]);
}
