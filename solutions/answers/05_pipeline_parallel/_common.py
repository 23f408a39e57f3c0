"""What answers to notebook 05 share."""


def gpipe_rows(p, m):
    return [[(kind, s, i) for kind in "FB" for i in range(m)] for s in range(p)]


def alternating_row(s, m, warm_up):
    row = [("F", s, i) for i in range(warm_up)]
    for i in range(m - warm_up):
        row += [("F", s, warm_up + i), ("B", s, i)]
    return row + [("B", s, i) for i in range(m - warm_up, m)]


def one_f_one_b_rows(p, m):
    return [alternating_row(s, m, min(p - s - 1, m)) for s in range(p)]
