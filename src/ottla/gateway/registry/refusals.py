"""The errors of the registry's API: a code, whose first three digits are HTTP's, and a message.

Clients match the codes, and some the messages, so both are Confluent's.
"""

from __future__ import annotations

from ottla.gateway.http import Refusal


def subject_not_found(subject: str | None) -> Refusal:
    return Refusal(40401, f"Subject '{subject}' not found.")


def version_not_found(version: int) -> Refusal:
    return Refusal(40402, f"Version {version} not found.")


def schema_not_found(which: int | str | None = None) -> Refusal:
    return Refusal(40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> Refusal:
    return Refusal(40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> Refusal:
    return Refusal(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: int) -> Refusal:
    return Refusal(
        40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently"
    )


def version_not_soft_deleted(subject: str, version: int) -> Refusal:
    return Refusal(
        40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted"
    )


def level_not_configured(subject: str) -> Refusal:
    return Refusal(40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str) -> Refusal:
    return Refusal(40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, details: str) -> Refusal:
    return Refusal(
        40901,
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: {details}',
    )


def invalid_schema(message: str) -> Refusal:
    return Refusal(42201, message)


def invalid_version(version: str) -> Refusal:
    return Refusal(
        42202,
        f"The specified version '{version}' is not a valid version id. "
        f'Allowed values are between [1, 2^31-1] and the string "latest"',
    )


def invalid_level() -> Refusal:
    return Refusal(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> Refusal:
    return Refusal(42204, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD.")


def not_permitted(message: str) -> Refusal:
    return Refusal(42205, message)


def reference_exists(subject: str, version: int) -> Refusal:
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return Refusal(42206, f"One or more references exist to the schema {key}.")


def id_does_not_match(schema_id: int) -> Refusal:
    return Refusal(42207, f"Overwrite new schema with id {schema_id} is not permitted.")


def invalid_subject(subject: str) -> Refusal:
    return Refusal(42208, f"The specified subject '{subject}' is not a valid.")


def schema_too_large() -> Refusal:
    return Refusal(42209, "Register operation failed because schema is too large")


def unreadable(message: str) -> Refusal:
    return Refusal(42200, message)


def store_failed(message: str) -> Refusal:
    return Refusal(50001, message)


def timed_out(message: str) -> Refusal:
    return Refusal(50002, message)
