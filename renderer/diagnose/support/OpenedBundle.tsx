import { Button, UnstyledButton } from "@mantine/core";
import { useState } from "react";
import { useTranslation } from "react-i18next";
import type { OpenedBundle } from "../../../electron/contract/index.js";
import { bytes, timeOfDay } from "../../shared/format.js";
import { oneLine } from "../../shared/printable.js";
import { useNow } from "../../store/console-hooks.js";
import { FileResult } from "../files/FileResult.js";
import { Fold } from "../Fold.js";
import { NodeReport } from "../NodeReport.js";
import { SourceViewer } from "../SourceViewer.js";
import css from "../files/files.module.css";
import page from "../diagnose.module.css";

/** A support bundle, opened without its cluster: what its console found then, and what this one makes of the same texts. */
export function OpenedBundleView({ bundle }: { bundle: OpenedBundle }) {
  const { t } = useTranslation();
  const now = useNow();
  const [node, setNode] = useState(bundle.diagnoses[0]?.nodeId ?? null);
  const [file, setFile] = useState<string | null>(null);
  const diagnosis = bundle.diagnoses.find((each) => each.nodeId === node);
  const opened = bundle.files.find((each) => each.name === file);
  return (
    <section className={page.result} data-testid="opened-bundle">
      <div className="toolbar">
        <h2>{oneLine(bundle.fileName, 80)}</h2>
        <span className="dim">{t("support.madeAt", { time: timeOfDay(bundle.madeAtMs, now), version: oneLine(bundle.version, 40) })}</span>
      </div>
      {bundle.diagnoses.length > 0 && (
        <>
          <div className="toolbar" role="group" aria-label={t("support.nodes")}>
            {bundle.diagnoses.map((each, index) => (
              <Button key={each.nodeId} size="compact-sm" variant={each.nodeId === node ? "filled" : "default"} aria-pressed={each.nodeId === node} onClick={() => setNode(each.nodeId)}>{oneLine(bundle.nodes[index]?.name ?? each.nodeId, 40)}</Button>
            ))}
          </div>
          {diagnosis && <NodeReport diagnosis={diagnosis} name={oneLine(bundle.nodes[bundle.diagnoses.indexOf(diagnosis)]?.name ?? diagnosis.nodeId, 60)} live={false} onSource={(sourceId) => setFile(bundle.files.find((each) => each.name.includes(sourceId))?.name ?? null)} />}
        </>
      )}
      <Fold label={t("support.judgedHere")} open={bundle.diagnoses.length === 0}><FileResult result={bundle.judged} /></Fold>
      <Fold label={t("support.files", { count: bundle.files.length })}>
        <table className={css.fileTable}>
          <tbody>{bundle.files.map((each) => <tr key={each.name}><td><UnstyledButton className={page.link} onClick={() => setFile(each.name)}>{oneLine(each.name, 120)}</UnstyledButton></td><td className={css.n}>{bytes(each.sizeBytes)}</td></tr>)}</tbody>
        </table>
      </Fold>
      <SourceViewer
        source={opened ? { id: opened.name, command: opened.name, state: "ok", collectedAtMs: bundle.madeAtMs, durationMs: 0, text: opened.text, truncatedBytes: opened.truncatedBytes, error: null } : null}
        line={null} onClose={() => setFile(null)}
      />
    </section>
  );
}
