import { createContext, createElement, useContext, type ReactNode } from "react";
import { useStore } from "zustand";
import { createStore, type StoreApi } from "zustand/vanilla";
import type { ShownError } from "../client/page-error.js";

/** What is open and what is chosen; nothing here comes from the host. */
export interface UiState {
  palette: boolean;
  shortcuts: boolean;
  addNodes: boolean;
  /** Nodes whose host keys are being confirmed; null = the dialog is closed. */
  hostKeys: readonly string[] | null;
  /** Nodes to bring up once the dialog's keys are confirmed. */
  afterKeys: readonly string[] | null;
  /** What went wrong with an action that has no place of its own on the screen. */
  notice: ShownError | null;
  /** The node whose drawer is open. */
  nodeDetail: string | null;
  /** The bottom dock with bring-ups and their steps. */
  work: boolean;
  selection: ReadonlySet<string>;
  set(change: Partial<Omit<UiState, "set">>): void;
}

export const createUi = (): StoreApi<UiState> =>
  createStore<UiState>()((set) => ({
    palette: false, shortcuts: false, addNodes: false, hostKeys: null, afterKeys: null, notice: null, nodeDetail: null, work: false, selection: new Set(),
    set: (change) => set(change),
  }));

const UiContext = createContext<StoreApi<UiState> | null>(null);
export const UiProvider = ({ ui, children }: { ui: StoreApi<UiState>; children: ReactNode }) => createElement(UiContext.Provider, { value: ui }, children);

export function useUiStore(): StoreApi<UiState> {
  const store = useContext(UiContext);
  if (!store) throw new Error("useUi outside of UiProvider");
  return store;
}
export const useUi = <T>(selector: (state: UiState) => T): T => useStore(useUiStore(), selector);
