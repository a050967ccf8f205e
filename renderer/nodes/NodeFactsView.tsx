import type { ReactNode } from "react";
import { useTranslation } from "react-i18next";
import type { NodeFacts } from "../../electron/contract/index.js";
import { bytes, linkSpeed, rate } from "../shared/format.js";
import { oneLine, printable } from "../shared/printable.js";
import { Age } from "../shared/small.js";
import type { NodeSample } from "../store/telemetry.js";
import css from "./nodes.module.css";

function Section({ title, children }: { title: ReactNode; children: ReactNode }) {
  return <section className={css.section}><h3>{title}</h3>{children}</section>;
}

const numa = (node: number | null): string => (node === null || node < 0 ? "–" : String(node));

/** The facts of a node as its daemon (or the preflight) read them, with what could not be read. */
export function NodeFactsView({ facts, sample }: { facts: NodeFacts; sample: NodeSample | undefined }) {
  const { t } = useTranslation();
  const live = new Map(sample?.nics.map((nic) => [nic.name, nic]) ?? []);
  const { driver } = facts;
  const unknown = t("facts.unknown");
  const text = (value: string | null): string => (value === null ? unknown : oneLine(value));
  const size = (value: number | null): string => (value === null ? unknown : bytes(value));
  return (
    <>
      <Section title={<>{t("facts.system")} <Age atMs={facts.collectedAtMs} /></>}>
        <dl className="kv">
          <dt>{t("facts.hostname")}</dt><dd>{oneLine(facts.hostname)}</dd>
          <dt>{t("facts.os")}</dt><dd>{text(facts.os)}</dd>
          <dt>{t("nodes.columns.kernel")}</dt><dd className="mono">{text(facts.kernel)}</dd>
          <dt>{t("facts.cpu")}</dt><dd>{[text(facts.cpuModel), facts.cpuThreads !== null && t("facts.threads", { count: facts.cpuThreads }), facts.numaNodes > 0 && t("facts.numa", { count: facts.numaNodes })].filter((part) => part !== false).join(" · ")}</dd>
          <dt>{t("facts.memory")}</dt><dd>{t("facts.memoryFree", { free: size(sample?.memoryAvailableBytes ?? facts.memoryAvailableBytes), total: size(facts.memoryTotalBytes) })}</dd>
          <dt>{t("facts.memlock")}</dt><dd>{facts.memlockBytes === null ? t("facts.unlimited") : bytes(facts.memlockBytes)}</dd>
        </dl>
      </Section>
      <Section title={t("facts.driver")}>
        <dl className="kv">
          <dt>{t("facts.module")}</dt><dd>{driver.present ? `${oneLine(driver.version ?? "")} (ABI ${oneLine(driver.abi ?? "–")})` : t("facts.notLoaded")}</dd>
          <dt>{t("facts.device")}</dt><dd>{driver.accessible ? t("facts.accessible") : t("facts.notAccessible")} <span className="mono dim">{oneLine(driver.deviceMode ?? "")}</span></dd>
          {driver.lastError !== null && <><dt>{t("facts.lastError")}</dt><dd className="mono">{printable(driver.lastError)}</dd></>}
        </dl>
      </Section>
      <Section title={t("facts.nics")}>
        <table className={css.facts}>
          <thead><tr><th>{t("facts.name")}</th><th>{t("facts.state")}</th><th>{t("facts.speed")}</th><th>MTU</th><th>{t("facts.addresses")}</th><th>{t("facts.driverName")}</th><th>NUMA</th><th>{t("facts.txRx")}</th></tr></thead>
          <tbody>
            {facts.nics.map((nic) => (
              <tr key={nic.name}>
                <td className="mono" title={text(nic.mac)}>{oneLine(nic.name)}</td><td>{oneLine(nic.state)}</td><td>{linkSpeed(nic.speedMbps)}</td><td>{nic.mtuBytes ?? unknown}</td>
                <td className={`mono ${css.wrap}`}>{nic.addresses.map((address) => <div key={address}>{oneLine(address)}</div>)}</td>
                <td title={nic.pci ?? undefined}>{oneLine(nic.driver ?? "–")}</td><td>{numa(nic.numaNode)}</td>
                <td>{live.has(nic.name) ? `${rate(live.get(nic.name)!.txBytesPerSecond)} / ${rate(live.get(nic.name)!.rxBytesPerSecond)}` : "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Section>
      <Section title={t("facts.rdma")}>
        {facts.rdma.length === 0 ? <span className="dim">{t("nodes.none")}</span> : (
          <table className={css.facts}>
            <thead><tr><th>{t("facts.name")}</th><th>{t("facts.state")}</th><th>{t("facts.linkLayer")}</th><th>{t("facts.speed")}</th><th>MTU</th><th>GID</th></tr></thead>
            <tbody>
              {facts.rdma.map((port) => (
                <tr key={`${port.name}/${port.port}`}>
                  <td className="mono">{oneLine(`${port.name}/${port.port}`)}<div className="dim">{oneLine(port.netdev ?? "")}</div></td><td>{oneLine(port.state)}</td><td>{oneLine(port.linkLayer)}</td>
                  <td>{port.rateGbps === null ? "–" : `${port.rateGbps}G`}</td><td>{port.activeMtuBytes ?? "–"}</td>
                  <td className={`mono ${css.wrap}`}>{port.gids.map((gid) => <div key={gid.index}>{gid.index}: {oneLine(gid.gid)} <span className="dim">{oneLine(gid.type)}</span></div>)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Section>
      <Section title={t("facts.gpus")}>
        {facts.gpus.length === 0 ? <span className="dim">{t("nodes.none")}</span> : (
          <table className={css.facts}>
            <thead><tr><th>#</th><th>{t("facts.name")}</th><th>PCI</th><th>NUMA</th><th>{t("facts.hbm")}</th><th>NVLink</th></tr></thead>
            <tbody>
              {facts.gpus.map((gpu) => (
                <tr key={gpu.index}>
                  <td>{gpu.index}</td><td className={css.wrap}>{oneLine(gpu.name)}</td><td className="mono">{oneLine(gpu.pci)}</td><td>{numa(gpu.numaNode)}</td>
                  <td>{bytes(gpu.memoryUsedBytes)} / {bytes(gpu.memoryTotalBytes)}</td><td>{gpu.nvlinksActive}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Section>
      {facts.unreadable.length > 0 && (
        <Section title={t("facts.unreadable")}>
          <ul className="mono" style={{ margin: 0, paddingLeft: 18 }}>{facts.unreadable.map((what) => <li key={what}>{oneLine(what)}</li>)}</ul>
        </Section>
      )}
    </>
  );
}
