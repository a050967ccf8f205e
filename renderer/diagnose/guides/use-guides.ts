import { useEffect } from "react";
import { useStore } from "zustand";
import { createStore, type StoreApi } from "zustand/vanilla";
import type { GuideId, GuideView } from "../../../electron/contract/index.js";
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

const NONE: readonly GuideId[] = [];
const useFitting = perConsole<ReadonlyMap<string, readonly GuideId[]>>((): StoreApi<ReadonlyMap<string, readonly GuideId[]>> => createStore<ReadonlyMap<string, readonly GuideId[]>>()(() => new Map()));

/** The guides that fit a class of fault, the best first; asked for once a class, however many cards show it. Null = asks nothing. */
export function useGuidesFor(faultClass: string | null): readonly GuideId[] {
  const { client } = useConsole();
  const store = useFitting();
  const known = useStore(store, (fitting) => (faultClass === null ? NONE : fitting.get(faultClass)));
  useEffect(() => {
    if (faultClass === null || store.getState().has(faultClass)) return;
    const put = (guides: readonly GuideId[]) => store.setState((before) => new Map(before).set(faultClass, guides), true);
    put(NONE);
    // A card without these links is still whole: a refusal has nothing to tell here.
    client.request("guides.for", { class: faultClass }).then(put, () => undefined);
  }, [client, store, faultClass]);
  return known ?? NONE;
}
