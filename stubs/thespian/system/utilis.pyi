_thesplog_file: str
_thesplog_old_file: str
