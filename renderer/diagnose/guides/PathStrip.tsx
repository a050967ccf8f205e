import { Button, UnstyledButton } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import IconCheck from "@tabler/icons-react/icons/IconCheck";
import IconChevronRight from "@tabler/icons-react/icons/IconChevronRight";
import IconMinus from "@tabler/icons-react/icons/IconMinus";
import IconQuestionMark from "@tabler/icons-react/icons/IconQuestionMark";
import IconTopologyStar3 from "@tabler/icons-react/icons/IconTopologyStar3";
import IconX from "@tabler/icons-react/icons/IconX";
import type { PathView } from "../../../electron/contract/index.js";
import { go } from "../../app/router.js";
import { oneLine } from "../../shared/printable.js";
import type { Icon } from "../../shared/small.js";
import { useConsole, useItems } from "../../store/console-hooks.js";
import { laneId } from "../../topology/lanes.js";
import { useTopologyUi } from "../../topology/store.js";
import { Evidence } from "../Evidence.js";
import { useSay } from "../words.js";
import css from "../diagnose.module.css";

type PathElement = PathView["elements"][number];
const STATES: Record<PathElement["state"], Icon> = { ok: IconCheck, broken: IconX, unknown: IconQuestionMark, not_reached: IconMinus };

/** GPU to peer as one line of elements; the first that breaks a rule stands out, and can be looked up on the map. */
export function PathStrip({ path }: { path: PathView }) {
  const { t } = useTranslation();
  const say = useSay();
  const { nodes } = useConsole();
  const items = useItems(nodes);
  const topologyUi = useTopologyUi();
  const [opened, setOpened] = useState<number | null>(path.firstBroken);
  const name = (id: string) => oneLine(items.get(id)?.name ?? id, 40);
  const broken = path.firstBroken === null ? undefined : path.elements[path.firstBroken];
  const shown = opened === null ? undefined : path.elements[opened];
  const mark = (element: PathElement) => {
    const { ref } = element;
    topologyUi.setState({
      mark: { ref, label: element.label, rule: element.rule },
      transport: "all", selection: ref.kind === "link" && ref.transport !== "shm" ? { kind: "lane", id: laneId(ref.from, ref.to, ref.transport) } : { kind: "node", id: ref.kind === "link" ? ref.from : ref.nodeId },
    });
    go("topology");
  };
  return (
    <section className={css.block} data-testid="path" data-broken={path.firstBroken ?? undefined}>
      <h3>{path.to === null ? t("guides.pathOf", { from: name(path.from) }) : t("guides.path", { from: name(path.from), to: name(path.to) })}</h3>
      <div className={css.path} role="list">
        {path.elements.map((element, index) => {
          const IconOf = STATES[element.state];
          return (
            <span key={index} role="listitem" className={css.pathPart}>
              {index > 0 && <IconChevronRight size={13} aria-hidden className={css.pathArrow} />}
              <UnstyledButton
                className={css.pathElement} data-state={element.state} data-first={index === path.firstBroken || undefined} aria-expanded={index === opened}
                onClick={() => setOpened(index === opened ? null : index)} aria-label={`${t(`guides.kinds.${element.ref.kind}`)} ${oneLine(element.label, 60)}: ${t(`guides.elements.${element.state}`)}`}
              >
                <IconOf size={13} aria-hidden />
                <span><span className={css.pathKind}>{t(`guides.kinds.${element.ref.kind}`)}</span>{oneLine(element.label, 40)}</span>
              </UnstyledButton>
            </span>
          );
        })}
        <span className="spacer" />
        {broken && <Button size="compact-xs" variant="default" leftSection={<IconTopologyStar3 size={13} />} onClick={() => mark(broken)} data-testid="show-on-topology">{t("guides.showOnTopology")}</Button>}
      </div>
      {shown && (
        <div className={css.pathDetail}>
          <p>{say(shown.rule)}</p>
          {shown.evidence.length > 0 && <Evidence pieces={shown.evidence} />}
        </div>
      )}
    </section>
  );
}
