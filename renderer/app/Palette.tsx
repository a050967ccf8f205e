import { Modal, TextInput, useMantineColorScheme } from "@mantine/core";
import { useEffect, useMemo, useRef, useState, type KeyboardEvent } from "react";
import { useTranslation } from "react-i18next";
import IconSearch from "@tabler/icons-react/icons/IconSearch";
import { toShownError } from "../client/page-error.js";
import { oneLine } from "../shared/printable.js";
import { Shortcut } from "../shared/small.js";
import { useConsole } from "../store/console-hooks.js";
import { LANGUAGES, type Language } from "../i18n/index.js";
import { useBringUp } from "../nodes/use-operations.js";
import { VIEWS } from "../diagnose/store.js";
import { matches } from "./fuzzy.js";
import { go, PAGES } from "./router.js";
import { PAGE_KEYS } from "./page-keys.js";
import { useUi, useUiStore } from "./ui.js";
import css from "./app.module.css";

interface Command {
  id: string;
  group: string;
  label: string;
  hint?: string;
  keys?: string;
  run(): void;
}
const SHOWN = 40;

function useCommands(): Command[] {
  const { t, i18n } = useTranslation();
  const { nodes, runs, client } = useConsole();
  const ui = useUiStore();
  const { setColorScheme } = useMantineColorScheme({ keepTransitions: true });
  const bringUp = useBringUp();
  return useMemo(() => {
    const { set } = ui.getState();
    const list: Command[] = PAGES.map((page) => ({
      id: `go-${page}`, group: t("palette.pages"), label: t("palette.go", { page: t(`pages.${page}`) }), keys: PAGE_KEYS[page], run: () => go(page),
    }));
    for (const view of VIEWS) {
      list.push({ id: `diagnose-${view}`, group: t("palette.pages"), label: `${t("pages.diagnose")}: ${t(`diagnose.view.${view}`)}`, run: () => go("diagnose", { view }) });
    }
    const act = t("palette.actions");
    list.push({ id: "add", group: act, label: t("nodes.add"), keys: "n", run: () => { go("nodes"); set({ addNodes: true }); } });
    const all = [...nodes.api.getState().items.values()];
    const waiting = all.filter((node) => node.phase === "needs_host_key" || node.phase === "new").map((node) => node.id);
    if (waiting.length > 0) list.push({ id: "keys", group: act, label: t("palette.confirmKeys", { count: waiting.length }), run: () => set({ hostKeys: waiting }) });
    const ready = all.filter((node) => node.phase === "reachable" || node.phase === "failed" || node.phase === "degraded").map((node) => node.id);
    if (ready.length > 0) list.push({ id: "up", group: act, label: t("palette.bringUp", { count: ready.length }), run: () => { go("nodes"); void bringUp.run(ready); } });
    for (const run of runs.api.getState().items.values()) {
      if (run.state !== "running" && run.state !== "starting") continue;
      list.push({ id: `stop-${run.id}`, group: act, label: t("palette.stopRun", { id: run.id }), run: () => void client.request("runs.stop", { runId: run.id }).catch((thrown: unknown) => set({ notice: toShownError(thrown) })) });
    }
    list.push({ id: "shortcuts", group: act, label: t("app.shortcuts"), keys: "?", run: () => set({ shortcuts: true }) });
    for (const scheme of ["auto", "light", "dark"] as const) {
      list.push({ id: `scheme-${scheme}`, group: t("palette.appearance"), label: t("palette.scheme", { scheme: t(`colorSchemes.${scheme}`) }), run: () => setColorScheme(scheme) });
    }
    for (const tag of Object.keys(LANGUAGES) as Language[]) {
      list.push({ id: `lang-${tag}`, group: t("palette.appearance"), label: `${t("app.language")}: ${LANGUAGES[tag]}`, run: () => void i18n.changeLanguage(tag) });
    }
    for (const node of all) {
      list.push({ id: `node-${node.id}`, group: t("pages.nodes"), label: oneLine(node.name), hint: `${node.host} · ${t(`phases.${node.phase}`)}`, run: () => set({ nodeDetail: node.id }) });
    }
    return list;
  }, [t, i18n, nodes, runs, client, ui, setColorScheme, bringUp.run]);
}

/** Ctrl+K: every page, every action that is possible now, every node by name. */
export function Palette() {
  const { t } = useTranslation();
  const opened = useUi((s) => s.palette);
  const set = useUi((s) => s.set);
  return (
    <Modal
      opened={opened} onClose={() => set({ palette: false })} withCloseButton={false} padding={0} size={600} centered={false} yOffset="12vh"
      aria-label={t("palette.title")} data-testid="palette"
    >
      {opened && <PaletteBody onDone={() => set({ palette: false })} />}
    </Modal>
  );
}

function PaletteBody({ onDone }: { onDone(): void }) {
  const { t } = useTranslation();
  const commands = useCommands();
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const found = useMemo(() => commands.filter((command) => matches(text, `${command.label} ${command.hint ?? ""}`)).slice(0, SHOWN), [commands, text]);
  const current = Math.min(at, found.length - 1);
  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [current]);
  const choose = (command: Command | undefined) => {
    if (!command) return;
    onDone();
    command.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      setAt(found.length === 0 ? 0 : (current + step + found.length) % found.length);
    } else if (event.key === "Enter" && !event.nativeEvent.isComposing) {
      event.preventDefault();
      choose(found[current]);
    }
  };
  return (
    <div>
      <TextInput
        data-autofocus size="md" variant="unstyled" className={css.paletteInput} leftSection={<IconSearch size={16} />} placeholder={t("palette.placeholder")} aria-label={t("palette.title")}
        value={text} onChange={(event) => { setText(event.currentTarget.value); setAt(0); }} onKeyDown={onKeyDown}
        role="combobox" aria-expanded aria-controls="palette-list" aria-activedescendant={found[current] ? `palette-${found[current].id}` : undefined}
      />
      <div className={css.paletteList} role="listbox" id="palette-list" aria-label={t("palette.title")} ref={list}>
        {found.map((command, index) => (
          <div key={command.id}>
            {found[index - 1]?.group !== command.group && <div className={css.paletteGroup} role="presentation">{command.group}</div>}
            <div
              id={`palette-${command.id}`} role="option" aria-selected={index === current} className={css.paletteItem}
              onMouseMove={() => setAt(index)} onClick={() => choose(command)}
            >
              <span className="ellipsis">{command.label}</span>
              {command.hint !== undefined && <span className="dim ellipsis">{command.hint}</span>}
              <span className="spacer" />
              {command.keys !== undefined && <Shortcut keys={command.keys} />}
            </div>
          </div>
        ))}
        {found.length === 0 && <div className={css.paletteEmpty}>{t("palette.none")}</div>}
      </div>
    </div>
  );
}
