/** A failure of the lab that a person can meet: a stable code, one sentence, and what to do next. */
export class LabError extends Error {
  constructor(
    readonly code: LabErrorCode,
    message: string,
    readonly next: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = 'LabError';
  }
}

export type LabErrorCode =
  | 'LAB_BUSY'
  | 'LAB_ALREADY_UP'
  | 'LAB_NOT_UP'
  | 'LAB_BAD_ARGUMENT'
  | 'LAB_MISSING_PROGRAM'
  | 'LAB_NO_KERNEL'
  | 'LAB_IMAGE_BUILD'
  | 'LAB_COMMAND_FAILED'
  | 'LAB_QEMU_FAILED'
  | 'LAB_NOT_READY'
  | 'LAB_SSH_FAILED'
  | 'LAB_SNAPSHOT_FAILED'
  | 'LAB_HUB_FAILED'
  | 'LAB_FAULT_FAILED';

/** One line for people, whatever was thrown. */
export function describeError(error: unknown): string {
  if (error instanceof LabError) return `${error.code}: ${error.message}\n  next: ${error.next}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
