import { afterEach } from "vitest";
import { cleanup, configure } from "@testing-library/react";

// Mantine asks for these; happy-dom has no layout to answer from.
globalThis.ResizeObserver ??= class {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
};
// A virtual list shows what fits: without layout that would be nothing.
Object.defineProperties(HTMLElement.prototype, { clientHeight: { get: () => 600, configurable: true }, clientWidth: { get: () => 1000, configurable: true } });
if (typeof window !== "undefined" && typeof window.matchMedia !== "function") {
  window.matchMedia = (query) => ({
    matches: false, media: query, onchange: null, addListener() {}, removeListener() {}, addEventListener() {}, removeEventListener() {}, dispatchEvent: () => false,
  });
}
// The whole suite shares few cores: a slow render is no failure.
configure({ asyncUtilTimeout: 10_000 });
afterEach(cleanup);
