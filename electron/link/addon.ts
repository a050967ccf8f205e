import { ConsoleError } from "../contract/index.js";
import type * as addon from "../../native/addon/index.js";

export type Addon = typeof addon;

let loading: Promise<Addon> | undefined;

/** The native addon, loaded once and only when something needs it. H105 when it was not built. */
export function loadAddon(): Promise<Addon> {
  loading ??= import("../../native/addon/index.js").catch((cause: unknown) => {
    loading = undefined;
    throw ConsoleError.of("H105", { detail: `the native addon cannot be loaded (${cause instanceof Error ? cause.message.slice(0, 300) : String(cause)})` }, cause);
  });
  return loading;
}
