import type { TFunction } from "i18next";
import { SETTINGS, type SettingName, type SettingValue } from "../../electron/contract/index.js";
import { bytes, duration, sizeTick } from "../shared/format.js";

/** A value as a person reads it: "on", "128 MiB", "not set". */
export function valueText(name: SettingName, value: SettingValue, t: TFunction): string {
  if (value === null) return t("settings.notSet");
  if (typeof value === "boolean") return t(value ? "settings.on" : "settings.off");
  const kind = SETTINGS[name];
  if (kind.kind === "number" && kind.unit === "bytes") return bytes(value);
  if (kind.kind === "number" && kind.unit === "permille") return permilleText(value);
  if (kind.kind === "number" && kind.unit === "ms") return value < 1000 ? `${value} ms` : duration(value);
  return String(value);
}

/** 105 -> "10.5%". */
export const permilleText = (permille: number): string => `${Number((permille / 10).toFixed(1))}%`;
/** "10%", "10.5" -> 100, 105; null where it is no share of a whole number of permille. */
function parsePercent(text: string): number | null {
  const match = /^(\d{1,3})(?:\.(\d))?\s*%?$/.exec(text);
  return match ? Number(match[1]) * 10 + Number(match[2] ?? 0) : null;
}

/** A number as it stands in a field or a limit: bytes with their unit, a share in per cent. */
export function numberText(name: SettingName, value: number): string {
  const kind = SETTINGS[name];
  if (kind.kind !== "number") return String(value);
  return kind.unit === "bytes" ? sizeTick(value) : kind.unit === "permille" ? permilleText(value) : String(value);
}

/** The value that all of `values` have, or undefined where they differ or there is none. */
export function common<T>(values: readonly T[]): T | undefined {
  return values.length > 0 && values.every((value) => value === values[0]) ? values[0] : undefined;
}

/** What was typed for a number, checked: undefined = no number that the setting takes. Empty text unsets it. */
export function parseValue(name: SettingName, text: string, parseSize: (text: string) => number | null): SettingValue | undefined {
  if (text.trim() === "") return null;
  const kind = SETTINGS[name];
  if (kind.kind !== "number") return undefined;
  const value = kind.unit === "bytes" ? parseSize(text.trim()) : kind.unit === "permille" ? parsePercent(text.trim()) : /^\d{1,9}$/.test(text.trim()) ? Number(text.trim()) : null;
  if (value === null || value < kind.min || value > kind.max) return undefined;
  return kind.powerOfTwo && !Number.isInteger(Math.log2(value)) ? undefined : value;
}
