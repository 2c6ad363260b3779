import json
import logging

STANDARD = set(vars(logging.makeLogRecord({})))


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in STANDARD}
        line = {"level": record.levelname, "message": record.getMessage(), **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


handler = logging.StreamHandler()
handler.setFormatter(JsonLines())
logging.getLogger("oxpull_async").addHandler(handler)
