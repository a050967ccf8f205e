import { useSyncExternalStore } from "react";

export const PAGES = ["nodes", "topology", "memory", "collectives", "diagnose", "alerts", "settings"] as const;
export type Page = (typeof PAGES)[number];
export interface Route {
  page: Page;
  /** Pre-selection that one page hands to another, such as the nodes to diagnose. */
  query: URLSearchParams;
}

/** `#/diagnose?nodes=a,b` -> the page and its query; whatever is unknown leads to Nodes. */
export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const page = PAGES.find((each) => each === path) ?? "nodes";
  return { page, query: new URLSearchParams(query) };
}

export const hrefOf = (page: Page, query: Record<string, string> = {}): string => {
  const text = new URLSearchParams(query).toString();
  return `#/${page}${text === "" ? "" : `?${text}`}`;
};

export const go = (page: Page, query?: Record<string, string>): void => {
  window.location.hash = hrefOf(page, query);
};

const subscribe = (listener: () => void) => {
  window.addEventListener("hashchange", listener);
  return () => window.removeEventListener("hashchange", listener);
};

let cached: { hash: string; route: Route } | null = null;
const snapshot = (): Route => {
  const { hash } = window.location;
  if (cached?.hash !== hash) cached = { hash, route: parseRoute(hash) };
  return cached.route;
};

export const useRoute = (): Route => useSyncExternalStore(subscribe, snapshot);
