import { Button, Tabs } from "@mantine/core";
import { useEffect } from "react";
import { useTranslation } from "react-i18next";
import { useStore } from "zustand";
import IconStethoscope from "@tabler/icons-react/icons/IconStethoscope";
import { GuideId } from "../../electron/contract/index.js";
import { go, hrefOf, useRoute } from "../app/router.js";
import { EmptyState } from "../shared/small.js";
import { useConsole, useIds, useLoaded } from "../store/console-hooks.js";
import { FilesView } from "./files/FilesView.js";
import { GuidesView } from "./guides/GuidesView.js";
import { HangsView } from "./hangs/HangsView.js";
import { NodesView } from "./NodesView.js";
import { PairsView } from "./pairs/PairsView.js";
import { useDiagnoseUi, VIEWS, type View } from "./store.js";
import { SupportView } from "./support/SupportView.js";
import css from "./diagnose.module.css";

const BODIES: Record<View, React.ComponentType> = { nodes: NodesView, guides: GuidesView, pairs: PairsView, hangs: HangsView, files: FilesView, support: SupportView };
/** What can be done without a single node. */
const WITHOUT_NODES: readonly View[] = ["files", "hangs"];

/** `#/diagnose?view=guides&guide=slow&nodes=a,b`: every way in is an address. */
function useAddress(): void {
  const { nodes } = useConsole();
  const loaded = useLoaded(nodes);
  const { query } = useRoute();
  const ui = useDiagnoseUi();
  const [view, guide, wanted] = [query.get("view"), query.get("guide"), query.get("nodes")];
  useEffect(() => {
    const known = VIEWS.find((each) => each === view);
    if (known) ui.setState({ view: known });
    const parsed = GuideId.safeParse(guide);
    if (parsed.success) ui.setState({ guide: parsed.data, guideRun: null });
  }, [view, guide, ui]);
  useEffect(() => {
    const asked = wanted?.split(",").filter((id) => nodes.api.getState().items.has(id)) ?? [];
    if (asked.length === 0) return;
    ui.setState({ chosen: new Set(asked), ...(view === null || view === "nodes" ? { view: "nodes" as const, shown: asked.length === 1 ? asked[0]! : null } : {}) });
  }, [wanted, view, nodes, ui, loaded]);
}

export function DiagnosePage() {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const ids = useIds(nodes);
  const loaded = useLoaded(nodes);
  const view = useStore(useDiagnoseUi(), (s) => s.view);
  useAddress();
  const Body = BODIES[view];
  return (
    <Tabs value={view} onChange={(next) => { if (next !== null) go("diagnose", { view: next }); }} className={css.frame!} classNames={{ list: css.tabs!, tab: css.tab!, panel: css.page! }}>
      <Tabs.List aria-label={t("diagnose.views")}>
        {VIEWS.map((each) => <Tabs.Tab key={each} value={each} data-testid={`view-${each}`}>{t(`diagnose.view.${each}`)}</Tabs.Tab>)}
      </Tabs.List>
      <Tabs.Panel value={view}>
        {loaded && ids.length === 0 && !WITHOUT_NODES.includes(view)
          ? <div className={`panel ${css.wide}`}><EmptyState icon={IconStethoscope} title={t("diagnose.empty.title")} action={<Button component="a" href={hrefOf("nodes")}>{t("diagnose.empty.action")}</Button>}>{t("diagnose.empty.text")}</EmptyState></div>
          : <Body />}
      </Tabs.Panel>
    </Tabs>
  );
}
