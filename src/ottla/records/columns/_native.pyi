from ottla.records.batch import Buffer
from ottla.records.columns._pure import RawColumns

def columns(data: Buffer, spans: Buffer, first_offset: int, end_offset: int, with_headers: bool) -> RawColumns: ...
