import { Drawer, Tabs } from "@mantine/core";
import { useTranslation } from "react-i18next";
import { useUi } from "../app/ui.js";
import { useConsole } from "../store/console-hooks.js";
import { AddByHand } from "./AddByHand.js";
import { AddFromList } from "./AddFromList.js";
import { AddFromSshConfig } from "./AddFromSshConfig.js";

/** The drawer with the three ways to add nodes. What was added goes straight on to the confirmation of host keys. */
export function AddNodes() {
  const { t } = useTranslation();
  const { nodes } = useConsole();
  const opened = useUi((s) => s.addNodes);
  const set = useUi((s) => s.set);
  const onAdded = (ids: string[], allWell: boolean) => {
    if (ids.length === 0) return;
    const items = nodes.api.getState().items;
    const unconfirmed = ids.filter((id) => items.get(id)?.hostKey.status !== "trusted");
    if (!allWell) return;
    set({ addNodes: false, selection: new Set(ids), ...(unconfirmed.length > 0 ? { hostKeys: unconfirmed, afterKeys: null } : {}) });
  };
  return (
    <Drawer opened={opened} onClose={() => set({ addNodes: false })} title={t("add.title")} size={560} closeButtonProps={{ "aria-label": t("common.close") }} data-testid="add-nodes">
      <Tabs defaultValue="hand">
        <Tabs.List mb="sm">
          <Tabs.Tab value="hand">{t("add.byHand")}</Tabs.Tab>
          <Tabs.Tab value="list">{t("add.fromList")}</Tabs.Tab>
          <Tabs.Tab value="config">{t("add.fromConfig")}</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="hand"><AddByHand onAdded={onAdded} /></Tabs.Panel>
        <Tabs.Panel value="list"><AddFromList onAdded={onAdded} /></Tabs.Panel>
        <Tabs.Panel value="config"><AddFromSshConfig onAdded={onAdded} /></Tabs.Panel>
      </Tabs>
    </Drawer>
  );
}
