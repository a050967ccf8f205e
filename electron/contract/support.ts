import { z } from "zod";
import { DiagnosisView, FileDiagnosisView, InputFiles } from "./diagnosis.js";
import { NodeId } from "./nodes.js";

const UploadId = z.string().regex(/^[a-z0-9-]{1,60}$/);
export const SupportBundleId = z.string().regex(/^[a-z0-9-]{1,60}$/);
/** Bytes of one piece, before Base64. */
export const PIECE_BYTES = 512 * 1024;
const Piece = z.base64().max(Math.ceil(PIECE_BYTES / 3) * 4);

/** What stands for names, addresses, serials and keys: how many of each were replaced. */
export const RedactionKind = z.enum(["host", "user", "ipv4", "ipv6", "mac", "guid", "serial", "uuid", "secret", "path"]);
export type RedactionKind = z.infer<typeof RedactionKind>;

export const SupportBundleView = z.object({
  bundleId: SupportBundleId,
  fileName: z.string(),
  sizeBytes: z.number(),
  madeAtMs: z.number(),
  expiresAtMs: z.number(),
  files: z.array(z.object({ name: z.string(), sizeBytes: z.number(), replaced: z.number() })),
  replaced: z.array(z.object({ kind: RedactionKind, names: z.number(), places: z.number() })),
});
export type SupportBundleView = z.infer<typeof SupportBundleView>;

/** A support bundle, opened: readable without a cluster. */
export const OpenedBundle = z.object({
  fileName: z.string(),
  madeAtMs: z.number(),
  version: z.string(),
  nodes: z.array(z.object({ name: z.string(), phase: z.string() })),
  diagnoses: z.array(DiagnosisView),
  /** What the engine of this console makes of the texts. */
  judged: FileDiagnosisView,
  files: z.array(z.object({ name: z.string(), sizeBytes: z.number(), text: z.string(), truncatedBytes: z.number() })),
});
export type OpenedBundle = z.infer<typeof OpenedBundle>;

export const FILES_METHODS = {
  /** Files travel in pieces of at most PIECE_BYTES. They are kept for an hour, or until the console ends. H608 when it is too large. */
  "uploads.begin": { params: z.strictObject({ name: z.string().min(1).max(255), sizeBytes: z.number().int().min(0).max(4 * 1024 ** 3) }), result: z.object({ uploadId: UploadId }) },
  /** Pieces come in order; `offset` is where this one belongs. */
  "uploads.append": { params: z.strictObject({ uploadId: UploadId, offset: z.number().int().min(0), base64: Piece }), result: z.object({ receivedBytes: z.number() }) },
  "uploads.discard": { params: z.strictObject({ uploadId: UploadId }), result: z.object({}) },
  /** Judges pasted or dropped files; a request that can be cancelled. */
  "diagnose.files": { params: z.strictObject({ files: InputFiles }), result: FileDiagnosisView },
} as const;

export const SUPPORT_METHODS = {
  /** Redacts all that is known of these nodes (all of them where none is named) and packs it. Nothing leaves the console. */
  "support.prepare": { params: z.strictObject({ nodeIds: z.array(NodeId).min(1).max(10_000).optional() }), result: SupportBundleView },
  /** One file of it as it would be handed on. */
  "support.preview": { params: z.strictObject({ bundleId: SupportBundleId, name: z.string().max(255) }), result: z.object({ text: z.string(), truncatedBytes: z.number() }) },
  "support.read": { params: z.strictObject({ bundleId: SupportBundleId, offset: z.number().int().min(0) }), result: z.object({ base64: z.string(), nextOffset: z.number(), sizeBytes: z.number() }) },
  /** One file of a bundle that was sent, for what `support.open` gives only the beginning of. */
  "support.openFile": { params: z.strictObject({ uploadId: UploadId, name: z.string().max(255) }), result: z.object({ text: z.string(), truncatedBytes: z.number() }) },
  "support.open": { params: z.strictObject({ uploadId: UploadId }), result: OpenedBundle },
} as const;
