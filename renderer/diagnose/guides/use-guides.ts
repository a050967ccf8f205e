import { useEffect } from "react";
import { useStore } from "zustand";
import { createStore, type StoreApi } from "zustand/vanilla";
import type { GuideView } from "../../../electron/contract/index.js";
import { toShownError, type ShownError } from "../../client/page-error.js";
import { useConsole } from "../../store/console-hooks.js";
import { perConsole } from "../../store/per-console.js";

interface GuideList {
  guides: readonly GuideView[];
  state: "new" | "asked" | "there";
  error: ShownError | null;
}
const useGuideStore = perConsole<GuideList>((): StoreApi<GuideList> => createStore<GuideList>()(() => ({ guides: [], state: "new", error: null })));

/** The guides that the console has; asked for once, since they do not change while it runs. */
export function useGuideList(): GuideList & { retry(): void } {
  const { client } = useConsole();
  const store = useGuideStore();
  const list = useStore(store);
  useEffect(() => {
    if (list.state !== "new") return;
    store.setState({ state: "asked", error: null });
    client.request("guides.list", {}).then(
      (guides) => store.setState({ guides, state: "there" }),
      (thrown: unknown) => store.setState({ error: toShownError(thrown) }),
    );
  }, [client, store, list.state]);
  return { ...list, retry: () => store.setState({ state: "new" }) };
}
